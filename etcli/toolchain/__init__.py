"""Outside tools, found and verified or explained: compilers, ExecuTorch, CMake, ELF reading."""
