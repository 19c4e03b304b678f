/* Reads a file by std::ifstream, prints its length and a checksum, and waits for end of input. */
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <vector>

int main(int, char **words) {
    uint64_t sum = 0, length = 0;
    {
        std::ifstream file(words[1], std::ios::binary);
        std::vector<char> part(1 << 20);
        while (file.read(part.data(), (std::streamsize)part.size()) || file.gcount()) {
            for (std::streamsize at = 0; at < file.gcount(); at++)
                sum = sum * 31 + (unsigned char)part[(size_t)at];
            length += (uint64_t)file.gcount();
        }
    }
    std::printf("%llu %016llx\n", (unsigned long long)length, (unsigned long long)sum);
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
    return 0;
}
