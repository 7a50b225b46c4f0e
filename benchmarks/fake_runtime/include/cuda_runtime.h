/* The allocator's header needs only the C part; the C++ part includes headers of the compiler nvcc. */
#pragma once
#include <cuda_runtime_api.h>
