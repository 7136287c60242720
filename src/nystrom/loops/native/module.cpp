// The boundary to Python: arrays are typed, checked once, and passed on as pointers; the loops run without the GIL.
//
// No input from Python makes a loop read or write outside its arrays: every size, label and index is checked here.
// Working memory of the loops is allocated here too.
#include <cmath>
#include <vector>

#include "boundary.hpp"
#include "team.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace nystrom::boundary;
using nystrom::Index;
using nystrom::InstructionSet;
using nystrom::Loops;
using nystrom::Rows;

namespace {

// A matrix (p, m) in the layout of the loops: panels of columns, padded with zeros.
template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<3>> pack(const InstructionSet &set, Matrix<T> columns)
{
    const Index panel = loops<T>(set).panel, p = Index(columns.shape(0)), m = Index(columns.shape(1));
    const Index count = m / panel + (m % panel != 0), down = Index(columns.stride(0)), along = Index(columns.stride(1));
    const T *from = aligned(columns, "columns");
    auto made = room<T>(count * panel, p);
    T *data = made.get();
    {
        nb::gil_scoped_release released;
        for (Index j = 0; j < m; j++)
            for (Index k = 0; k < p; k++)
                data[(j / panel * p + k) * panel + j % panel] = from[k * down + j * along];
    }
    nb::capsule owner(made.release(), [](void *held) noexcept { delete[] static_cast<T *>(held); });
    return nb::ndarray<nb::numpy, T, nb::ndim<3>>(data, {std::size_t(count), std::size_t(p), std::size_t(panel)}, owner);
}

// Returns the sum of the squared norms of the rows if they are used, so that the caller can check that all are finite.
template <class T>
double product(const InstructionSet &set, Matrix<T> X, Panels<T> panels, OutMatrix<T> out, double gamma,
               std::optional<Vector<T>> norms, bool exp, std::optional<Vector<T>> minus,
               std::optional<OutVector<T>> largest, std::optional<OutMatrix<T>> kept, bool add)
{
    const Loops<T> &own = loops<T>(set);
    const Index m = Index(out.shape(1));
    Rows<T> rows = rows_of(X, "X");
    T *to = out_rows(out, rows.n, m, "out");
    const T *table = panels_of(own, panels, rows.p, m);
    HeldEnding<T> held(rows.n, m, own.panel, gamma, norms, exp, minus, largest, kept, add);
    const Index out_stride = Index(out.stride(0));
    nb::gil_scoped_release released;
    return own.product(rows, table, m, to, out_stride, held.end);
}

// A number as the sum of two; the first has at most half the digits of T, so its product with an exponent is exact.
template <class T>
void split(double value, T parts[2])
{
    constexpr int digits = sizeof(T) == 4 ? 12 : 40;
    int exponent;
    const double fraction = std::frexp(value, &exponent);
    parts[0] = T(std::ldexp(std::round(std::ldexp(fraction, digits)), exponent - digits));
    parts[1] = T(value - double(parts[0]));
}

template <class T>
void norm_kernel(const InstructionSet &set, Matrix<T> X, Panels<T> panels, OutMatrix<T> out, double gamma, double p,
                 double q)
{
    require(0 < q && q <= p && p <= 2, "0 < q <= p <= 2 must hold.");
    const Loops<T> &own = loops<T>(set);
    const Index m = Index(out.shape(1));
    Rows<T> rows = rows_of(X, "X");
    T *to = out_rows(out, rows.n, m, "out");
    const T *table = panels_of(own, panels, rows.p, m);
    const Index out_stride = Index(out.stride(0));
    nystrom::NormKernel<T> kernel = {T(gamma), p != 1, q != p, {}, {}};
    split<T>(p, kernel.power);
    split<T>(q / p, kernel.root);
    nb::gil_scoped_release released;
    own.norm_kernel(rows, table, m, kernel, to, out_stride);
}

// Bytes of a table of columns that stay in the cache between chunks of rows; for larger ones BLAS is faster.
constexpr Index largest_table = 8 * 1024 * 1024;

bool suits_product(const InstructionSet &set, std::int64_t p, std::int64_t m, std::int64_t itemsize, bool exp)
{
    const Index widest = exp ? set.widest_exponential : set.widest_product;
    return p >= 0 && m >= 0 && m <= widest && (m == 0 || p <= largest_table / std::max<Index>(itemsize, 1) / m);
}

bool suits_gram(const InstructionSet &set, std::int64_t k) { return k <= set.widest_product; }

// out += FᵀF on and above the diagonal, and at some places below it; totals += the sums of the columns. Products are
// summed as doubles if `wide`.
template <class T>
void add_gram(const InstructionSet &set, Matrix<T> F, OutMatrix<double> out, bool wide,
              std::optional<OutVector<double>> totals)
{
    const Loops<T> &own = loops<T>(set);
    Rows<T> rows = rows_of(F, "F");
    double *to = out_rows(out, rows.p, rows.p, "out");
    const Index stride = Index(out.stride(0));
    if (totals)
        require_size(Index(totals->size()), rows.p, "totals");
    double *sums = totals ? aligned(*totals, "totals") : nullptr;
    if (wide) {
        const Index lanes = loops<double>(set).lanes;
        auto space = raw_room<double>(own.gram_chain, (rows.p / lanes + 1) * lanes);
        nb::gil_scoped_release released;
        own.wide_gram(rows, space.get(), to, stride, sums);
        return;
    }
    auto space = raw_room<T>(own.gram_chain, (rows.p / own.lanes + 1) * own.lanes);
    nb::gil_scoped_release released;
    own.gram(rows, space.get(), to, stride, sums);
}

template <class T>
void nearest(const InstructionSet &set, Matrix<T> X, Panels<T> panels, Vector<T> half, Vector<T> shift,
             OutVector<std::int32_t> labels)
{
    const Loops<T> &own = loops<T>(set);
    Rows<T> rows = rows_of(X, "X");
    const Index m = Index(half.size());
    require(m >= 1 && m <= std::numeric_limits<std::int32_t>::max() - own.panel, "there must be a centre.");
    const T *table = panels_of(own, panels, rows.p, m);
    require_size(Index(shift.size()), rows.p, "shift");
    require_size(Index(labels.size()), rows.n, "labels");
    const T *origin = aligned(shift, "shift");
    auto *to = aligned(labels, "labels");
    auto space = room<T>(own.tile_rows, rows.p);
    auto each = filled_up<T>(half, m, own.panel, std::numeric_limits<T>::infinity(), "half");
    nb::gil_scoped_release released;
    own.nearest(rows, origin, table, each.get(), m, space.get(), to);
}

template <class T>
double cluster_sums(const InstructionSet &set, Matrix<T> X, Vector<std::int32_t> labels, std::optional<Vector<T>> shift,
                    OutMatrix<double> sums, OutVector<std::int64_t> counts)
{
    Rows<T> rows = rows_of(X, "X");
    const Index m = Index(counts.size());
    double *to = contiguous(sums, m, rows.p, "sums");
    require_size(Index(labels.size()), rows.n, "labels");
    const std::int32_t *each = aligned(labels, "labels");
    std::int64_t *numbers = aligned(counts, "counts");
    if (shift)
        require_size(Index(shift->size()), rows.p, "shift");
    const T *origin = shift ? aligned(*shift, "shift") : nullptr;
    bool inside = true;
    for (Index i = 0; i < rows.n; i++)
        inside &= each[i] >= 0 && Index(each[i]) < m;
    require(inside, "labels must be one number from 0 to " + std::to_string(m - 1) + " per row.");
    nb::gil_scoped_release released;
    return loops<T>(set).sums(rows, origin, each, to, numbers);
}

// Returns the number of seeds written to `chosen`.
template <class T>
std::int64_t seed(const InstructionSet &set, Matrix<T> A, Vector<T> squares, Matrix<double> uniform,
                  OutVector<std::int64_t> chosen, Index n_threads)
{
    const Loops<T> &own = loops<T>(set);
    const Index n = Index(A.shape(0)), p = Index(A.shape(1)), wanted = Index(chosen.size());
    const Index n_candidates = Index(uniform.shape(1));
    require(n >= 1 && wanted >= 1, "there must be a row, and a seed to draw.");
    require(n_threads >= 1, "n_threads must be at least 1.");
    require(n_candidates >= 1, "uniform must have a column per candidate, and at least one; got 0.");
    require(Index(uniform.shape(0)) == wanted - 1, "uniform must have a row per seed but the first.");
    require(wanted == 1 || n_candidates == 1 || (uniform.stride(1) == 1), "uniform must be contiguous.");
    require(wanted <= 2 || Index(uniform.stride(0)) == n_candidates, "uniform must be contiguous.");
    require_size(Index(squares.size()), n, "squares");
    std::int64_t *to = aligned(chosen, "chosen");
    require(to[0] >= 0 && to[0] < n, "the first seed must be the number of a row.");
    const T *from = aligned(A, "A"), *norms = aligned(squares, "squares");
    const double *draws = aligned(uniform, "uniform");
    const Index down = Index(A.stride(0)), along = Index(A.stride(1));
    const Index width = (n + own.stretch - 1) / own.stretch * own.stretch, panel = own.points_panel;
    auto points = room<T>(width, p + 1), lengths = room<T>(1, width), closest = room<T>(1, width);
    auto nearer = room<T>(n_candidates, width);
    auto totals = room<double>(n_candidates, width / own.stretch), ends = room<double>(1, width / own.stretch);
    auto candidates = room<std::int64_t>(1, n_candidates);
    nb::gil_scoped_release released;
    for (Index start = 0; start < n; start += panel)
        for (Index k = 0; k < p; k++) {
            T *row = points.get() + start * p + k * panel;
            for (Index i = start; i < std::min(start + panel, n); i++)
                row[i - start] = from[i * down + k * along];
        }
    std::copy(norms, norms + n, lengths.get());
    std::fill(closest.get(), closest.get() + n, std::numeric_limits<T>::infinity());
    nystrom::Seeds<T> seeds = {points.get(), n, width, p, lengths.get(), draws, wanted, n_candidates, to,
                      candidates.get(), totals.get(), closest.get(), nearer.get(), ends.get()};
    return std::int64_t(nystrom::draw_seeds(own, seeds, n_threads));
}

template <class T>
void normal_product(const InstructionSet &set, Matrix<T> C, Matrix<double> V, std::optional<Vector<double>> weights,
                    OutMatrix<double> U, OutMatrix<double> out)
{
    Rows<T> rows = rows_of(C, "C");
    const Index m = rows.p, t = Index(V.shape(1));
    require_size(Index(V.shape(0)), m, "V");
    if (weights)
        require_size(Index(weights->size()), rows.n, "weights");
    const double *w = weights ? aligned(*weights, "weights") : nullptr, *v = aligned(V, "V");
    double *u = contiguous(U, rows.n, t, "U"), *to = contiguous(out, m, t, "out");
    const Index down = Index(V.stride(0)), along = Index(V.stride(1));
    auto turned = room<double>(t, m), sums = room<double>(t, m);
    nb::gil_scoped_release released;
    for (Index c = 0; c < t; c++)
        for (Index j = 0; j < m; j++)
            turned[c * m + j] = v[j * down + c * along];
    loops<T>(set).normal(rows, turned.get(), t, w, u, sums.get());
    for (Index j = 0; j < m; j++)
        for (Index c = 0; c < t; c++)
            to[j * t + c] += sums[c * m + j];
}

// out += the contributions of each factor, from the factors of one row and of the background rows, by quadrature.
void coalitions(const InstructionSet &set, Matrix<double> x, Panels<double> background, Vector<double> weights,
                Vector<double> nodes, Vector<double> parts, OutMatrix<double> out)
{
    Rows<double> rows = rows_of(x, "x");
    const Index p = rows.n, m = rows.p, count = Index(weights.size());
    require(p <= 1 || rows.stride == m, "x must be contiguous.");
    require(Index(background.shape(0)) == count && Index(background.shape(1)) == p && Index(background.shape(2)) == m,
            "background must have a matrix of the shape of x per weight.");
    require_size(Index(parts.size()), Index(nodes.size()), "parts");
    double *to = contiguous(out, p, m, "out");
    const nystrom::Coalitions held = {rows.data, aligned(background, "background"), aligned(weights, "weights"),
                                      aligned(nodes, "nodes"), aligned(parts, "parts"), p, m, count, Index(nodes.size())};
    auto space = raw_room<double>(5 * nystrom::widest_coalition, p);
    nb::gil_scoped_release released;
    set.coalitions(held, space.get(), to);
}

// Nothing is converted: an array of another type or layout is refused, not copied.
template <class T>
void bind(nb::class_<InstructionSet> &set)
{
    set.def("pack", &pack<T>, nb::arg("columns").noconvert());
    set.def("product", &product<T>, nb::arg("X").noconvert(), nb::arg("panels").noconvert(), nb::arg("out").noconvert(),
            "gamma"_a = 0.0, nb::arg("norms").noconvert() = nb::none(), "exp"_a = false,
            nb::arg("minus").noconvert() = nb::none(), nb::arg("largest").noconvert() = nb::none(),
            nb::arg("kept").noconvert() = nb::none(), "add"_a = false);
    set.def("norm_kernel", &norm_kernel<T>, nb::arg("X").noconvert(), nb::arg("panels").noconvert(),
            nb::arg("out").noconvert(), "gamma"_a, "p"_a, "q"_a);
    set.def("add_gram", &add_gram<T>, nb::arg("F").noconvert(), nb::arg("out").noconvert(), "wide"_a = false,
            nb::arg("totals").noconvert() = nb::none());
    set.def("nearest", &nearest<T>, nb::arg("X").noconvert(), nb::arg("panels").noconvert(), nb::arg("half").noconvert(),
            nb::arg("shift").noconvert(), nb::arg("labels").noconvert());
    set.def("cluster_sums", &cluster_sums<T>, nb::arg("X").noconvert(), nb::arg("labels").noconvert(),
            nb::arg("shift").noconvert().none(), nb::arg("sums").noconvert(), nb::arg("counts").noconvert());
    set.def("seed", &seed<T>, nb::arg("A").noconvert(), nb::arg("squares").noconvert(), nb::arg("uniform").noconvert(),
            nb::arg("chosen").noconvert(), "n_threads"_a = 1);
    set.def("normal_product", &normal_product<T>, nb::arg("C").noconvert(), nb::arg("V").noconvert(),
            nb::arg("weights").noconvert().none(), nb::arg("U").noconvert(), nb::arg("out").noconvert());
}

}  // namespace

NB_MODULE(_native, m)
{
    // Not a leak worth a message if a process ends while its pool still holds a function.
    nb::set_leak_warnings(false);
    nb::class_<InstructionSet> set(m, "InstructionSet");
    set.def_prop_ro("name", [](const InstructionSet &s) { return std::string(s.name); });
    set.def("suits_product", &suits_product, "p"_a, "m"_a, "itemsize"_a, "exp"_a);
    set.def("suits_gram", &suits_gram, "k"_a);
    set.def_prop_ro("gram_chain", [](const InstructionSet &s) { return s.float32.gram_chain; });
    bind<float>(set);
    bind<double>(set);
    bind_sparse(m, set);
    set.def("coalitions", &coalitions, nb::arg("x").noconvert(), nb::arg("background").noconvert(),
            nb::arg("weights").noconvert(), nb::arg("nodes").noconvert(), nb::arg("parts").noconvert(),
            nb::arg("out").noconvert());
    // The last one is the fastest.
    m.def("instruction_sets", [] {
        std::vector<const InstructionSet *> sets = {&nystrom::baseline};
#ifdef NYSTROM_X86
        if (nystrom::runs_avx2())
            sets.push_back(&nystrom::avx2);
        if (nystrom::runs_avx512())
            sets.push_back(&nystrom::avx512);
#endif
        nb::list all;
        for (const InstructionSet *each : sets)
            all.append(nb::cast(each, nb::rv_policy::reference));
        return all;
    });
}
