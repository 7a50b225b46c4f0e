/* What cuda_runtime_api.h needs of a header that NVIDIA's wheel leaves out, for a host compiler. */
#pragma once
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDART_CB
#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __cluster_dims__(...)
#define __forceinline__ inline
#define __inline_hint__
#define __location__(a)
#define __annotate__(a) __attribute__((a))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __align__(n) __attribute__((aligned(n)))
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
