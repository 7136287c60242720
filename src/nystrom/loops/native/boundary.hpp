// Shared by the sources of the boundary: typed arrays, and checks of their sizes.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "table.hpp"

namespace nystrom::boundary {

namespace nb = nanobind;

template <class T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::device::cpu>;
template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Panels = nb::ndarray<const T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
template <class T>
using OutMatrix = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;
template <class T>
using OutVector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
const Loops<T> &loops(const InstructionSet &set);
template <>
inline const Loops<float> &loops(const InstructionSet &set)
{
    return set.float32;
}
template <>
inline const Loops<double> &loops(const InstructionSet &set)
{
    return set.float64;
}

inline void require(bool holds, const std::string &message)
{
    if (!holds)
        throw nb::value_error(message.c_str());
}

inline void require_size(Index size, Index wanted, const char *name)
{
    require(size == wanted, std::string(name) + " must have size " + std::to_string(wanted) + "; got " +
                                std::to_string(size) + ".");
}

// The data of a contiguous array, checked to be aligned for T.
template <class Array>
auto *aligned(const Array &array, const char *name)
{
    using T = std::remove_const_t<typename Array::Scalar>;
    auto *data = array.data();
    require(array.size() == 0 || reinterpret_cast<std::uintptr_t>(data) % alignof(T) == 0,
            std::string(name) + " must be aligned.");
    return data;
}

template <class T>
Rows<T> rows_of(const Matrix<T> &X, const char *name)
{
    require(X.size() == 0 || X.shape(1) == 1 || X.stride(1) == 1, std::string(name) + " must have contiguous rows.");
    return {aligned(X, name), Index(X.stride(0)), Index(X.shape(0)), Index(X.shape(1))};
}

template <class T>
T *out_rows(const OutMatrix<T> &out, Index n, Index m, const char *name)
{
    require(Index(out.shape(0)) == n && Index(out.shape(1)) == m,
            std::string(name) + " must have shape (" + std::to_string(n) + ", " + std::to_string(m) + "); got (" +
                std::to_string(out.shape(0)) + ", " + std::to_string(out.shape(1)) + ").");
    require(n == 0 || m <= 1 || out.stride(1) == 1, std::string(name) + " must have contiguous rows.");
    return aligned(out, name);
}

template <class T>
T *contiguous(const OutMatrix<T> &out, Index n, Index m, const char *name)
{
    T *data = out_rows(out, n, m, name);
    require(n <= 1 || m == 0 || Index(out.stride(0)) == m, std::string(name) + " must be contiguous.");
    return data;
}

// Panels of m columns, for products with rows of p columns.
template <class T>
const T *panels_of(const Loops<T> &loops, const Panels<T> &table, Index p, Index m)
{
    Index count = m / loops.panel + (m % loops.panel != 0);
    require(Index(table.shape(0)) == count && Index(table.shape(1)) == p && Index(table.shape(2)) == loops.panel,
            "panels must be those of " + std::to_string(p) + " rows and " + std::to_string(m) + " columns.");
    return aligned(table, "panels");
}

inline Finish finish_of(bool norms, bool exp)
{
    return !norms ? Finish::product : exp ? Finish::exponential : Finish::exponents;
}

inline std::size_t room_size(Index rows, Index columns, std::size_t itemsize)
{
    if (columns > 0 && rows > std::numeric_limits<Index>::max() / Index(itemsize) / columns)
        throw std::bad_alloc();
    return std::size_t(rows * columns);
}

// Memory filled with zeros.
template <class T>
std::unique_ptr<T[]> room(Index rows, Index columns)
{
    return std::unique_ptr<T[]>(new T[room_size(rows, columns, sizeof(T))]());
}

// Uninitialised memory.
template <class T>
std::unique_ptr<T[]> raw_room(Index rows, Index columns)
{
    return std::unique_ptr<T[]>(new T[room_size(rows, columns, sizeof(T))]);
}

// One number per column, padded to the width of their panels.
template <class T>
std::unique_ptr<T[]> filled_up(const std::optional<Vector<T>> &values, Index m, Index panel, T fill, const char *name)
{
    if (!values)
        return nullptr;
    require_size(Index(values->size()), m, name);
    const T *from = aligned(*values, name);
    const Index width = (m / panel + 1) * panel;
    auto made = room<T>(1, width);
    std::fill(std::copy(from, from + m, made.get()), made.get() + width, fill);
    return made;
}

// How a product of n rows and m columns ends, with its data per column in the layout that the loops read.
template <class T>
struct HeldEnding {
    std::unique_ptr<T[]> norms, minus;
    Ending<T> end;

    HeldEnding(Index n, Index m, Index panel, double gamma, const std::optional<Vector<T>> &norms_,
               bool exp, const std::optional<Vector<T>> &minus_, const std::optional<OutVector<T>> &largest,
               const std::optional<OutMatrix<T>> &kept, bool add = false)
        : norms(filled_up(norms_, m, panel, T(0), "norms")), minus(filled_up(minus_, m, panel, T(0), "minus"))
    {
        require(!add || !norms_, "plain products alone are added.");
        require(!minus_ || (norms_ && exp), "minus is taken from exponentials alone.");
        require((!largest && !kept) || minus_, "largest and kept are found where minus is taken.");
        if (largest)
            require_size(Index(largest->size()), n, "largest");
        end = {finish_of(norms_.has_value(), exp),
               T(gamma),
               norms.get(),
               minus.get(),
               largest ? aligned(*largest, "largest") : nullptr,
               kept ? out_rows(*kept, n, m, "kept") : nullptr,
               kept ? Index(kept->stride(0)) : 0,
               add};
    }
};

// Define the functions for sparse rows.
void bind_sparse(nb::module_ &m, nb::class_<InstructionSet> &set);

}  // namespace nystrom::boundary
