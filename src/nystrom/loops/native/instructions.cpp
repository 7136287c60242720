// The loops for one instruction set: this source is compiled once for each. NYSTROM_SET is its name,
// NYSTROM_VECTOR_BYTES the width of its vectors; NYSTROM_TILE_ROWS and NYSTROM_TILE_VECTORS are the rows and vectors of
// sums that its registers hold.
#include "clusters.hpp"
#include "coalitions.hpp"
#include "distances.hpp"
#include "gram.hpp"
#include "normal_equations.hpp"
#include "product.hpp"
#include "seeds.hpp"
#include "sparse.hpp"

namespace nystrom {

namespace NYSTROM_SET {

template <class T, class I>
constexpr SparseLoops<T, I> sparse_loops()
{
    return {sparse_product<T, I>, column_sums<T, I>, heavy_sum<T, I>, within<I>, rises<T, I>};
}

template <class T>
constexpr Loops<T> loops()
{
    return {panel<T>,
            lanes<T>,
            tile_rows,
            gram_chain,
            stretch,
            points_panel<T>,
            product<T>,
            norm_kernel<T>,
            gram<T, T>,
            gram<double, T>,
            nearest<T>,
            sums<T>,
            try_candidates<T>,
            choose<T>,
            normal<T>,
            sparse_loops<T, std::int32_t>(),
            sparse_loops<T, std::int64_t>()};
}

}  // namespace NYSTROM_SET

#define NYSTROM_TEXT_(name) #name
#define NYSTROM_TEXT(name) NYSTROM_TEXT_(name)

extern const InstructionSet NYSTROM_TABLE = {NYSTROM_TEXT(NYSTROM_TABLE), NYSTROM_WIDEST_PRODUCT,
                                             NYSTROM_WIDEST_EXPONENTIAL, NYSTROM_SET::loops<float>(),
                                             NYSTROM_SET::loops<double>(), NYSTROM_SET::coalitions};

}  // namespace nystrom
