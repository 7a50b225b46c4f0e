/* The C part is all that the allocator's header needs; the C++ part includes headers of the compiler nvcc. */
#pragma once
#include <cuda_runtime_api.h>
