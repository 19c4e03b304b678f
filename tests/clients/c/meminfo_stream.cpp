// Reads /proc/meminfo as C++ programs do, and prints its first three lines.
#include <fstream>
#include <iostream>
#include <string>

int main()
{
    std::ifstream meminfo("/proc/meminfo");
    std::string line;
    for (int count = 0; count < 3 && std::getline(meminfo, line); count++)
        std::cout << line << '\n';
    return 0;
}
