/* The part of libcudart and libcuda that PyTorch's caching allocator calls, for a machine without a GPU.
 *
 * Memory is a budget (FAKE_CAPACITY bytes) and a counter of addresses: each new segment lies above all others, as in
 * snapreport/allocator/placement.py. Every stream and event is finished at once. All functions return 0 (success) unless
 * memory runs out; then they return 2 (cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY).
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, OUT_OF_MEMORY = 2 };
#define ALIGNMENT (2ull << 20)
#define MOST_SEGMENTS (1 << 16)

static size_t used, capacity, total;
static uintptr_t next_address = 1ull << 44;
static struct { uintptr_t address; size_t size; } segments[MOST_SEGMENTS];
static int segment_count;

static void start(void)
{
    if (capacity) return;
    const char *text = getenv("FAKE_CAPACITY");
    capacity = text ? strtoull(text, 0, 10) : 1ull << 62;
    text = getenv("FAKE_TOTAL");
    total = text ? strtoull(text, 0, 10) : capacity;
}

static uintptr_t address_space(size_t size)
{
    uintptr_t address = next_address;
    next_address += (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return address;
}

size_t fake_used(void) { return used; }

int cudaMalloc(void **pointer, size_t size)
{
    start();
    if (used + size > capacity || segment_count == MOST_SEGMENTS) return OUT_OF_MEMORY;
    used += size;
    segments[segment_count].address = address_space(size);
    segments[segment_count].size = size;
    *pointer = (void *)segments[segment_count++].address;
    return SUCCESS;
}

int cudaFree(void *pointer)
{
    for (int i = segment_count - 1; i >= 0; i--)
        if (segments[i].address == (uintptr_t)pointer) {
            used -= segments[i].size;
            segments[i] = segments[--segment_count];
            break;
        }
    return SUCCESS;
}

int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    start();
    *free_bytes = capacity - used;
    *total_bytes = total;
    return SUCCESS;
}

int cudaGetDevice(int *device) { return *device = 0; }
int cudaGetDeviceCount(int *count) { *count = 1; return SUCCESS; }
int cudaDriverGetVersion(int *version) { *version = 12080; return SUCCESS; }
int cudaStreamIsCapturing(void *stream, int *status) { return *status = 0; }
int cudaStreamGetCaptureInfo_v2(void *stream, int *status) { return *status = 0; }
int cudaStreamGetCaptureInfo_v3(void *stream, int *status) { return *status = 0; }
const char *cudaGetErrorString(int error) { return "no GPU"; }
const char *cudaGetErrorName(int error) { return "no GPU"; }

int cudaGetDeviceProperties_v2(void *properties, int device)
{
    start();
    memset(properties, 0, 1032);
    memcpy((char *)properties + 288, &total, sizeof total); /* cudaDeviceProp.totalGlobalMem */
    return SUCCESS;
}

/* The driver's virtual memory, for expandable segments. */
int cuMemAddressReserve(uintptr_t *address, size_t size, size_t alignment, uintptr_t wanted, unsigned long long flags)
{
    *address = address_space(size);
    return SUCCESS;
}

int cuMemCreate(uint64_t *handle, size_t size, const void *properties, unsigned long long flags)
{
    start();
    if (used + size > capacity) return OUT_OF_MEMORY;
    used += size;
    *handle = size; /* a handle is its size: enough to release it */
    return SUCCESS;
}

int cuMemRelease(uint64_t handle)
{
    used -= handle;
    return SUCCESS;
}

int cuMemGetAllocationGranularity(size_t *granularity, const void *properties, int option)
{
    *granularity = ALIGNMENT;
    return SUCCESS;
}

int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags, int *status)
{
    *function = dlsym(RTLD_DEFAULT, name);
    if (status) *status = *function ? 0 : 1;
    return *function ? SUCCESS : 500;
}

int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *status)
{
    return cudaGetDriverEntryPointByVersion(name, function, 0, flags, status);
}
