// The boundary for sparse rows: the columns of landmarks, made once and multiplied with block after block of CSR rows.
#include <vector>

#include "boundary.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace nystrom::boundary {

namespace {

template <class T, class I>
const SparseLoops<T, I> &sparse_loops(const InstructionSet &set)
{
    if constexpr (sizeof(I) == 4)
        return loops<T>(set).sparse32;
    else
        return loops<T>(set).sparse64;
}

// The ends of rows, checked to be in order; their entries are not checked yet.
template <class T, class I>
SparseRows<T, I> ordered_rows(const Vector<I> &ends, const Vector<I> &indices, const Vector<T> &data, Index p,
                              const char *name)
{
    const std::string who(name);
    require(ends.size() >= 1 && p >= 0, who + ".indptr must not be empty.");
    require(indices.size() == data.size(), who + ".indices and " + who + ".data must have the same size.");
    SparseRows<T, I> rows{aligned(ends, name), aligned(indices, name), aligned(data, name), Index(ends.size()) - 1, p};
    bool ordered = rows.ends[0] >= 0 && Index(rows.ends[rows.n]) <= Index(indices.size());
    for (Index i = 0; i < rows.n; i++)
        ordered &= rows.ends[i] <= rows.ends[i + 1];
    require(ordered, who + ".indptr must rise from 0 to the number of entries.");
    return rows;
}

template <class T, class I>
SparseRows<T, I> sparse_rows(const InstructionSet &set, const Vector<I> &ends, const Vector<I> &indices,
                             const Vector<T> &data, Index p, const char *name)
{
    auto rows = ordered_rows<T, I>(ends, indices, data, p, name);
    require(sparse_loops<T, I>(set).within(rows.indices, Index(indices.size()), p),
            std::string(name) + ".indices must be from 0 to " + std::to_string(p - 1) + ".");
    return rows;
}

// The columns of m landmarks with p columns, in the layout of the loops; see ColumnTable.
template <class T>
struct Columns {
    Index m, p, lanes, width, n_full = 0;
    std::vector<std::int32_t> places;
    std::vector<T> full;
    std::vector<Stretch<T>> stretches;

    Columns(const Loops<T> &own, Index m_, Index p_)
        : m(m_), p(p_), lanes(own.lanes), width((m_ + own.lanes - 1) / own.lanes * own.lanes)
    {
        require(m < std::numeric_limits<std::int32_t>::max() / 8 && p < std::numeric_limits<std::int32_t>::max(),
                "there are too many landmarks, or columns.");
    }

    ColumnTable<T> table() const
    {
        return {places.empty() ? nullptr : places.data(), n_full, width, full.data(), stretches.data()};
    }
};

// A full column costs one multiplication per vector of landmarks, a list about as much per entry.
constexpr Index entries_per_vector = 1;

template <class T, class I>
Columns<T> columns_of_sparse(const InstructionSet &set, Vector<I> ends, Vector<I> indices, Vector<T> data,
                             std::int64_t n_columns)
{
    auto Z = sparse_rows<T, I>(set, ends, indices, data, Index(n_columns), "Z");
    const Index first = Index(Z.ends[0]), last = Index(Z.ends[Z.n]);
    require(last - first < std::numeric_limits<std::int32_t>::max(), "Z has too many entries.");
    Columns<T> made(loops<T>(set), Z.n, Z.p);
    nb::gil_scoped_release released;
    // First the number of entries of each column, then its position.
    made.places.assign(std::size_t(Z.p) + 1, 0);
    for (Index k = first; k < last; k++)
        made.places[std::size_t(Z.indices[k])]++;
    const Index enough = std::min(std::max<Index>(made.width / made.lanes * entries_per_vector, stretch_entries + 1),
                                  stretch_entries * (most_stretches - 1));
    for (Index j = 0; j < Z.p; j++)
        made.n_full += made.places[std::size_t(j)] >= enough;
    Index n_full = 0, stretches = 0;
    for (Index j = 0; j < Z.p; j++) {
        Index count = made.places[std::size_t(j)], needed = (count + stretch_entries - 1) / stretch_entries;
        Index place = -1;
        if (count >= enough) {
            place = n_full++;
        } else if (count > 0) {
            place = made.n_full + stretches * most_stretches + needed;
            stretches += needed;
            require(place < std::numeric_limits<std::int32_t>::max(), "Z has too many entries.");
        }
        made.places[std::size_t(j)] = std::int32_t(place);
    }
    made.full.assign(std::size_t(made.n_full * made.width), T(0));
    made.stretches.resize(std::size_t(stretches));
    for (std::size_t k = 0; k < made.stretches.size(); k++)
        for (Index a = 0; a < stretch_entries; a++)
            made.stretches[k].numbers[a] = std::int32_t(made.width + (Index(k) * stretch_entries + a) % idle_sums);
    std::vector<std::uint8_t> taken(made.stretches.size(), 0);
    for (Index i = 0; i < Z.n; i++)
        for (Index k = Index(Z.ends[i]); k < Index(Z.ends[i + 1]); k++) {
            Index place = made.places[std::size_t(Z.indices[k])];
            if (place < made.n_full) {
                made.full[std::size_t(place * made.width + i)] += Z.data[k];
                continue;
            }
            const Index first = (place - made.n_full) / most_stretches, number = taken[std::size_t(first)]++;
            auto &into = made.stretches[std::size_t(first + number / stretch_entries)];
            into.numbers[number % stretch_entries] = std::int32_t(i);
            into.values[number % stretch_entries] = Z.data[k];
        }
    return made;
}

template <class T>
Columns<T> columns_of_dense(const InstructionSet &set, Matrix<T> Z)
{
    const Index m = Index(Z.shape(0)), p = Index(Z.shape(1)), down = Index(Z.stride(0)), along = Index(Z.stride(1));
    const T *from = aligned(Z, "Z");
    Columns<T> made(loops<T>(set), m, p);
    nb::gil_scoped_release released;
    made.n_full = p;
    made.full.assign(std::size_t(p * made.width), T(0));
    // In square blocks, so that both sides stay in the cache.
    constexpr Index side = 16;
    for (Index k = 0; k < p; k += side)
        for (Index i = 0; i < m; i += side)
            for (Index a = k; a < std::min(k + side, p); a++)
                for (Index b = i; b < std::min(i + side, m); b++)
                    made.full[std::size_t(a * made.width + b)] = from[b * down + a * along];
    return made;
}

// Returns the sum of the squared norms of the rows if they are used, so that the caller can check that all are finite.
template <class T, class I>
double sparse_product(const InstructionSet &set, Vector<I> ends, Vector<I> indices, Vector<T> data,
                      const Columns<T> &columns, OutMatrix<T> out, double gamma, std::optional<Vector<T>> norms, bool exp,
                      std::optional<Vector<T>> minus, std::optional<OutVector<T>> largest,
                      std::optional<OutMatrix<T>> kept)
{
    auto rows = sparse_rows<T, I>(set, ends, indices, data, columns.p, "X");
    require(columns.lanes == loops<T>(set).lanes, "the columns were made for another instruction set.");
    HeldEnding<T> held(rows.n, columns.m, loops<T>(set).panel, gamma, norms, exp, minus, largest, kept);
    T *to = out_rows(out, rows.n, columns.m, "out");
    const Index out_stride = Index(out.stride(0));
    auto sums = room<T>(1, columns.width + idle_sums);
    nb::gil_scoped_release released;
    return sparse_loops<T, I>(set).product(rows, columns.table(), columns.m, to, out_stride, gamma, held.end, sums.get());
}

template <class T, class I>
bool is_canonical(const InstructionSet &set, Vector<I> ends, Vector<I> indices, Vector<T> data, std::int64_t n_columns)
{
    auto rows = ordered_rows<T, I>(ends, indices, data, Index(n_columns), "X");
    if (rows.ends[0] != 0 || Index(rows.ends[rows.n]) != Index(indices.size()))
        return false;
    nb::gil_scoped_release released;
    return sparse_loops<T, I>(set).rises(rows);
}

// Adds the sums of the columns to `sums`, and returns the sum of all squares.
template <class T, class I>
double column_sums(const InstructionSet &set, Vector<I> ends, Vector<I> indices, Vector<T> data, OutVector<double> sums)
{
    auto rows = sparse_rows<T, I>(set, ends, indices, data, Index(sums.size()), "X");
    double *to = aligned(sums, "sums");
    nb::gil_scoped_release released;
    return sparse_loops<T, I>(set).column_sums(rows, to);
}

// The numbers of a vector, as an array that owns them.
template <class T>
nb::object as_array(std::vector<T> &&values)
{
    auto *held = new std::vector<T>(std::move(values));
    nb::capsule owner(held, [](void *kept) noexcept { delete static_cast<std::vector<T> *>(kept); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(held->data(), {held->size()}, owner));
}

// The sums of the rows of each label without their smallest entries, as CSR arrays: ends, columns and values.
template <class T, class I>
nb::tuple heavy_sums(const InstructionSet &set, Vector<I> ends, Vector<I> indices, Vector<T> data, std::int64_t n_columns,
                     Vector<std::int32_t> labels, std::optional<Vector<double>> weights, Vector<double> allowed)
{
    auto rows = sparse_rows<T, I>(set, ends, indices, data, Index(n_columns), "X");
    require(rows.p < std::numeric_limits<std::int32_t>::max(), "X has too many columns.");
    const Index m = Index(allowed.size());
    require_size(Index(labels.size()), rows.n, "labels");
    if (weights)
        require_size(Index(weights->size()), rows.n, "weights");
    const double *w = weights ? aligned(*weights, "weights") : nullptr, *each_allowed = aligned(allowed, "allowed");
    const std::int32_t *each = aligned(labels, "labels");
    // The row numbers sorted by label, with the end of each label.
    std::vector<std::int64_t> starts(std::size_t(m) + 2, 0), order(std::size_t(rows.n)), entries(std::size_t(m), 0);
    for (Index i = 0; i < rows.n; i++) {
        require(each[i] >= 0 && Index(each[i]) < m, "labels must be one number from 0 to " + std::to_string(m - 1) +
                                                        " per row.");
        starts[std::size_t(each[i]) + 2]++;
        entries[std::size_t(each[i])] += rows.ends[i + 1] - rows.ends[i];
    }
    std::vector<std::int64_t> out_ends(1, 0);
    std::vector<std::int32_t> out_columns;
    std::vector<double> out_values;
    {
        nb::gil_scoped_release released;
        for (std::size_t c = 0; c < std::size_t(m); c++)
            starts[c + 2] += starts[c + 1];
        for (Index i = 0; i < rows.n; i++)
            order[std::size_t(starts[std::size_t(each[i]) + 1]++)] = i;
        const std::int64_t most = m ? *std::max_element(entries.begin(), entries.end()) : 0;
        auto sums = room<double>(1, rows.p), values = room<double>(1, most + 1);
        auto columns = room<std::int32_t>(1, most + 1);
        for (std::size_t c = 0; c < std::size_t(m); c++) {
            const Index kept = sparse_loops<T, I>(set).heavy_sum(rows, order.data() + starts[c], starts[c + 1] - starts[c], w,
                                                                 each_allowed[c], sums.get(), columns.get(), values.get());
            out_columns.insert(out_columns.end(), columns.get(), columns.get() + kept);
            out_values.insert(out_values.end(), values.get(), values.get() + kept);
            out_ends.push_back(std::int64_t(out_columns.size()));
        }
    }
    return nb::make_tuple(as_array(std::move(out_ends)), as_array(std::move(out_columns)), as_array(std::move(out_values)));
}

template <class T, class I>
void bind_rows(nb::class_<InstructionSet> &set)
{
    auto indptr = nb::arg("indptr").noconvert(), indices = nb::arg("indices").noconvert();
    auto data = nb::arg("data").noconvert();
    set.def("sparse_columns", &columns_of_sparse<T, I>, indptr, indices, data, "n_columns"_a);
    set.def("sparse_product", &sparse_product<T, I>, indptr, indices, data, "columns"_a, nb::arg("out").noconvert(),
            "gamma"_a = 0.0, nb::arg("norms").noconvert() = nb::none(), "exp"_a = false,
            nb::arg("minus").noconvert() = nb::none(), nb::arg("largest").noconvert() = nb::none(),
            nb::arg("kept").noconvert() = nb::none());
    set.def("is_canonical", &is_canonical<T, I>, indptr, indices, data, "n_columns"_a);
    set.def("column_sums", &column_sums<T, I>, indptr, indices, data, nb::arg("sums").noconvert());
    set.def("heavy_sums", &heavy_sums<T, I>, indptr, indices, data, "n_columns"_a, nb::arg("labels").noconvert(),
            nb::arg("weights").noconvert().none(), nb::arg("allowed").noconvert());
}

template <class T>
void bind_columns(nb::module_ &m, nb::class_<InstructionSet> &set, const char *name)
{
    nb::class_<Columns<T>> columns(m, name);
    columns.def_prop_ro("nbytes", [](const Columns<T> &held) {
        return std::int64_t(held.full.size() * sizeof(T) + held.stretches.size() * sizeof(Stretch<T>) +
                            held.places.size() * sizeof(std::int32_t));
    });
    set.def("dense_columns", &columns_of_dense<T>, nb::arg("Z").noconvert());
    bind_rows<T, std::int32_t>(set);
    bind_rows<T, std::int64_t>(set);
}

}  // namespace

void bind_sparse(nb::module_ &m, nb::class_<InstructionSet> &set)
{
    bind_columns<float>(m, set, "SparseColumns32");
    bind_columns<double>(m, set, "SparseColumns64");
}

}  // namespace nystrom::boundary
