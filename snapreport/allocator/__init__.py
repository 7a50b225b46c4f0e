"""PyTorch's CUDA caching allocator as a program: replays a recorded trace under the same or under other settings."""
