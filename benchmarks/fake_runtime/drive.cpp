// Runs a program of requests through PyTorch's compiled caching allocator.
//
// drive PROGRAM RESULT: PROGRAM holds int64: the number of ids, then rows (kind, id, bytes, stream), kind 1 an allocation,
// 0 a free, -1 empty_cache(). RESULT receives a row (address, bytes taken from the device, retries) for each row;
// the address is 0 where nothing is allocated, -2 where memory ran out, which ends the program.
// FRACTION: argument of set_per_process_memory_fraction.
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

extern "C" size_t fake_used(void);

static std::vector<int64_t> read(const char *path)
{
    std::FILE *file = std::fopen(path, "rb");
    std::fseek(file, 0, SEEK_END);
    std::vector<int64_t> values(std::ftell(file) / sizeof(int64_t));
    std::rewind(file);
    if (std::fread(values.data(), sizeof(int64_t), values.size(), file) != values.size()) std::exit(1);
    std::fclose(file);
    return values;
}

int main(int argc, char **argv)
{
    if (argc != 3) return 1;
    const std::vector<int64_t> program = read(argv[1]);
    auto *allocator = c10::cuda::CUDACachingAllocator::get();
    allocator->init(1);
    if (const char *fraction = std::getenv("FRACTION")) allocator->setMemoryFraction(std::atof(fraction), 0);
    std::vector<void *> blocks(program.at(0), nullptr);
    std::vector<int64_t> result;
    for (size_t row = 1; row + 3 < program.size(); row += 4) {
        const int64_t kind = program[row], id = program[row + 1], size = program[row + 2], stream = program[row + 3];
        int64_t address = 0;
        if (kind == 1) {
            try {
                blocks[id] = allocator->raw_alloc_with_stream(size, reinterpret_cast<cudaStream_t>(stream));
                address = reinterpret_cast<int64_t>(blocks[id]);
            } catch (const c10::OutOfMemoryError &) {
                address = -2;
            }
        } else if (kind == 0) {
            allocator->raw_delete(blocks[id]);
        } else {
            allocator->emptyCache();
        }
        const auto stats = allocator->getDeviceStats(0);
        result.insert(result.end(), {address, static_cast<int64_t>(fake_used()), stats.num_alloc_retries});
        if (address == -2) break;
    }
    std::FILE *file = std::fopen(argv[2], "wb");
    std::fwrite(result.data(), sizeof(int64_t), result.size(), file);
    return std::fclose(file);
}
