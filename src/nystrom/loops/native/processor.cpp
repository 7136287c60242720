// Which instructions this processor has, and whether the operating system saves their registers.
#include "table.hpp"

#ifdef NYSTROM_X86
#include <cpuid.h>
#endif

namespace nystrom {

#ifdef NYSTROM_X86

namespace {

// The registers that the system saves when it switches threads (XCR0), or 0 if unknown.
unsigned saved_registers()
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 27)))
        return 0;
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

}  // namespace

bool runs_avx2()
{
    unsigned a, b, c, d;
    // SSE and AVX registers are saved; FMA; AVX2.
    if ((saved_registers() & 0x6u) != 0x6u || !__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 12)))
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 5));
}

bool runs_avx512()
{
    unsigned a, b, c, d;
    // As above; the masks and the wider registers are saved; AVX-512 F, DQ, BW and VL.
    const unsigned wanted = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31);
    if (!runs_avx2() || (saved_registers() & 0xe6u) != 0xe6u || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return false;
    return (b & wanted) == wanted;
}

#else

bool runs_avx2() { return false; }
bool runs_avx512() { return false; }

#endif

}  // namespace nystrom
