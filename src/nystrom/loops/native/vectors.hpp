// Vectors of the width of the current instruction set, by the extension that GCC and Clang share.
//
// Everything is in a namespace named after the instruction set, so that no function compiled for one processor can
// replace that of another. For the same reason nothing here calls an inline function of the standard library.
#pragma once

#include "table.hpp"

#define INLINE inline __attribute__((always_inline))

namespace nystrom::NYSTROM_SET {

template <class T>
struct Bits;
template <>
struct Bits<float> {
    using type = std::uint32_t;
};
template <>
struct Bits<double> {
    using type = std::uint64_t;
};

template <class T>
constexpr Index lanes = NYSTROM_VECTOR_BYTES / Index(sizeof(T));
// Rows and vectors of columns per tile, whose sums fill the registers.
constexpr Index tile_rows = NYSTROM_TILE_ROWS;
constexpr int tile_vectors = NYSTROM_TILE_VECTORS;
template <class T>
constexpr Index panel = tile_vectors * lanes<T>;
// Numbers per cache line.
template <class T>
constexpr Index line = 64 / Index(sizeof(T));

template <class T>
struct VectorOf {
    typedef T type __attribute__((vector_size(NYSTROM_VECTOR_BYTES)));
};
template <class T>
using Vector = typename VectorOf<T>::type;
template <class T>
using Unsigned = Vector<typename Bits<T>::type>;
// The result of comparing two vectors: signed integers, all ones where the comparison holds.
template <class T>
using Mask = decltype(Vector<T>{} < Vector<T>{});

// x - 0 is x for every x, so this costs nothing.
template <class T>
INLINE Vector<T> splat(T x)
{
    return x - Vector<T>{};
}

template <class T>
INLINE Vector<T> load(const T *from)
{
    Vector<T> v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}

template <class T, class V>
INLINE void store(T *to, V v)
{
    static_assert(sizeof v == NYSTROM_VECTOR_BYTES);
    __builtin_memcpy(to, &v, sizeof v);
}

template <class T>
INLINE Vector<T> load_part(const T *from, Index count)
{
    if (count >= lanes<T>)
        return load(from);
    T part[lanes<T>] = {};
    for (Index l = 0; l < count; l++)
        part[l] = from[l];
    return load(part);
}

// As many numbers as a vector of doubles has, converted to doubles.
INLINE Vector<double> load_double(const double *from) { return load(from); }

INLINE Vector<double> load_double(const float *from)
{
    typedef float Half __attribute__((vector_size(NYSTROM_VECTOR_BYTES / 2)));
    Half half;
    __builtin_memcpy(&half, from, sizeof half);
    return __builtin_convertvector(half, Vector<double>);
}

template <class T>
INLINE void store_part(T *to, Vector<T> v, Index count)
{
    if (count >= lanes<T>) {
        store(to, v);
        return;
    }
    T part[lanes<T>];
    store(part, v);
    for (Index l = 0; l < count; l++)
        to[l] = part[l];
}

// sums[a][v] += left[a * left_stride] * right[v]: one step of a product whose sums stay in registers. The vectors are
// right_stride numbers from each other.
template <class T, int rows, int vectors>
INLINE void add_step(const T *left, Index left_stride, const T *right, Index right_stride, Vector<T> (*sums)[vectors])
{
    Vector<T> columns[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
        columns[v] = load(right + v * right_stride);
#pragma GCC unroll 16
    for (int a = 0; a < rows; a++) {
        Vector<T> x = splat(left[a * left_stride]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            sums[a][v] += x * columns[v];
    }
}

template <class T>
INLINE T total(Vector<T> v)
{
    T part[lanes<T>];
    store(part, v);
    for (Index half = lanes<T> / 2; half; half /= 2)
        for (Index l = 0; l < half; l++)
            part[l] += part[l + half];
    return part[0];
}

template <class T>
constexpr bool is_float = sizeof(T) == 4;
// Adding this rounds to an integer, which is then in the low bits.
template <class T>
constexpr T rounder = is_float<T> ? T(12582912.0) : T(6755399441055744.0);  // 1.5 * 2^23 and 1.5 * 2^52
template <class T>
constexpr int fraction_bits = is_float<T> ? 23 : 52;

// 2^n exp(r) for |r| <= log(2) / 2, where `shifted` is n + rounder, and the result is a normal number.
template <class T>
INLINE Vector<T> scaled_exponential(Vector<T> r, Vector<T> shifted)
{
    // A Taylor polynomial; even and odd powers in two independent chains.
    Vector<T> square = r * r, even, odd;
    if constexpr (is_float<T>) {
        even = splat(T(1.0 / 720));
        odd = splat(T(1.0 / 5040));
    } else {
        even = splat(T(1.0 / 479001600.0));
        even = even * square + splat(T(1.0 / 3628800.0));
        even = even * square + splat(T(1.0 / 40320.0));
        even = even * square + splat(T(1.0 / 720));
        odd = splat(T(1.0 / 6227020800.0));
        odd = odd * square + splat(T(1.0 / 39916800.0));
        odd = odd * square + splat(T(1.0 / 362880.0));
        odd = odd * square + splat(T(1.0 / 5040));
    }
    even = even * square + splat(T(1.0 / 24));
    odd = odd * square + splat(T(1.0 / 120));
    even = even * square + splat(T(0.5));
    odd = odd * square + splat(T(1.0 / 6));
    even = even * square + splat(T(1.0));
    odd = odd * square + splat(T(1.0));
    Vector<T> y = odd * r + even;
    return (Vector<T>)((Unsigned<T>)y + ((Unsigned<T>)shifted << fraction_bits<T>));
}

// exp(x) for x <= 0, to about one unit in the last place; 0 if that is not a normal number, NaN for NaN.
//
// x = n log 2 + r with |r| <= log(2) / 2.
template <class T>
INLINE Vector<T> exponential(Vector<T> x)
{
    const T lowest = is_float<T> ? T(-87.0) : T(-708.0);
    const T log2_high = is_float<T> ? T(0x1.63p-1) : T(0x1.62e42feep-1);
    const T log2_low = is_float<T> ? T(-0x1.bd0106p-13) : T(0x1.a39ef35793c76p-33);
    auto under = x < splat(lowest);
    Vector<T> kept = under ? splat(lowest) : x;
    Vector<T> shifted = kept * splat(T(1.4426950408889634)) + splat(rounder<T>);
    Vector<T> n = shifted - splat(rounder<T>);
    Vector<T> r = kept - n * splat(log2_high);
    r = r - n * splat(log2_low);
    Vector<T> y = scaled_exponential<T>(r, shifted);
    y = under ? Vector<T>{} : y;
    return x == x ? y : x;
}

// a^b for a >= 0 and b = high + low with 0 < b <= 2, to a few units in the last place; 0 if a or the result is not a
// normal number, infinity if it overflows, NaN for NaN.
//
// a = 2^k m with m near 1, and b log2(a) = high k + (low k + b log2(m)); `high` has few digits, so high k is exact.
template <class T>
INLINE Vector<T> power(Vector<T> a, T high, T low)
{
    using Word = typename Bits<T>::type;
    constexpr int bias = is_float<T> ? 127 : 1023;
    constexpr Word one = Word(bias) << fraction_bits<T>, fraction = (Word(1) << fraction_bits<T>) - 1;
    constexpr Word root_half = is_float<T> ? Word(0x3f3504f3) : Word(0x3fe6a09e667f3bcd);
    // With an exponent in its low bits, this word is the number 2^fraction_bits plus the exponent.
    constexpr Word holder = Word(bias + fraction_bits<T>) << fraction_bits<T>;
    const T held = T(Word(1) << fraction_bits<T>) + T(bias);
    const T least = is_float<T> ? T(0x1p-126f) : T(0x1p-1022), most = is_float<T> ? T(0x1.fffffep127f) : T(0x1.fffffffffffffp1023);
    Unsigned<T> word = (Unsigned<T>)a + (one - root_half);
    Vector<T> k = (Vector<T>)((word >> fraction_bits<T>) | holder) - splat(held);
    Vector<T> m = (Vector<T>)((word & fraction) + root_half);
    // log2(m) = 2 / log(2) (s + s^3 / 3 + s^5 / 5 + ...) with |s| <= 0.172.
    Vector<T> s = (m - splat(T(1))) / (m + splat(T(1))), square = s * s;
    constexpr int terms = is_float<T> ? 6 : 12;
    constexpr double twice = 2.8853900817779268;
    Vector<T> sum = splat(T(twice / (2 * terms - 1)));
#pragma GCC unroll 16
    for (int i = terms - 2; i >= 0; i--)
        sum = sum * square + splat(T(twice / (2 * i + 1)));
    Vector<T> whole = k * splat(high), rest = k * splat(low) + (s * splat(high + low)) * sum;
    Vector<T> exponent = whole + rest;
    auto under = exponent < splat(T(2 - bias)), over = exponent > splat(T(bias));
    Vector<T> shifted = exponent + splat(rounder<T>);
    Vector<T> r = (whole - (shifted - splat(rounder<T>))) + rest;
    Vector<T> y = scaled_exponential<T>(r * splat(T(0.6931471805599453)), shifted);
    y = over ? splat(most) * splat(T(2)) : y;
    y = under ? Vector<T>{} : y;
    y = a < splat(least) ? Vector<T>{} : y;
    return a <= splat(most) ? y : a;
}

}  // namespace nystrom::NYSTROM_SET
