// Seeds drawn by several threads: they share the stretches of points whose distances are computed, and one chooses.
#pragma once

#include "table.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace nystrom {

// Rounds of work in a few pieces, each about ten microseconds long. A free thread takes the next piece, so on busy
// cores the leading thread does the pieces that the others do not reach; it waits only for pieces already taken.
class Rounds {
public:
    explicit Rounds(Index n_pieces) : n_pieces_(n_pieces) {}

    // Open a round, take part in it, and return when all its pieces are done.
    template <class Work>
    void lead(const Work &work)
    {
        done_.store(0, std::memory_order_relaxed);
        round_ += one_round;
        next_.store(round_, std::memory_order_release);
        take_part(work);
        for (Index spins = 0; done_.load(std::memory_order_acquire) < n_pieces_;)
            rest(spins);
    }

    // Take part in rounds until the end.
    template <class Work>
    void follow(const Work &work)
    {
        for (Index spins = 0; !ended_.load(std::memory_order_acquire);) {
            if (take_part(work))
                spins = 0;
            else
                rest(spins);
        }
    }

    void end() { ended_.store(true, std::memory_order_release); }

private:
    // `next_` holds the round in its high bits and the next piece in these low bits.
    static constexpr std::uint64_t one_round = std::uint64_t(1) << 32;

    template <class Work>
    bool take_part(const Work &work)
    {
        bool any = false;
        // Read before incrementing: waiting threads must not carry the counter into the next round.
        while (Index(next_.load(std::memory_order_acquire) % one_round) < n_pieces_) {
            const Index piece = Index(next_.fetch_add(1, std::memory_order_acq_rel) % one_round);
            if (piece >= n_pieces_)
                break;
            work(piece);
            done_.fetch_add(1, std::memory_order_acq_rel);
            any = true;
        }
        return any;
    }

    static void rest(Index &spins)
    {
        constexpr Index patience = 4000;
        if (++spins > patience)
            std::this_thread::yield();
    }

    const Index n_pieces_;
    std::uint64_t round_ = 0;
    std::atomic<std::uint64_t> next_{one_round - 1};
    std::atomic<Index> done_{0};
    std::atomic<bool> ended_{false};
};

// Draw seeds by k-means++ and return their number: fewer than wanted if all other points have distance 0. The result
// does not depend on the number of threads, since sums are taken over stretches and added in order.
template <class T>
Index draw_seeds(const Loops<T> &own, Seeds<T> seeds, Index n_threads)
{
    constexpr Index pieces_per_thread = 4;
    const Index n_stretches = seeds.width / own.stretch;
    const Index n_pieces = n_threads == 1 ? 1 : std::min(pieces_per_thread * n_threads, n_stretches);
    Rounds rounds(n_pieces);
    Index tried = 1;
    std::vector<T> space(std::size_t(n_pieces * most_at_once * seeds.p));
    auto work = [&](Index piece) {
        own.try_candidates(seeds, tried, n_stretches * piece / n_pieces, n_stretches * (piece + 1) / n_pieces,
                           space.data() + piece * most_at_once * seeds.p);
    };
    std::vector<std::thread> helpers;
    try {
        for (Index helper = 1; helper < n_threads; helper++)
            helpers.emplace_back([&] { rounds.follow(work); });
    } catch (const std::system_error &) {
        // The system has no more threads: the existing ones do the work.
    }
    seeds.candidates[0] = seeds.chosen[0];
    Index found = 0;
    for (bool more = true; more; found++) {
        rounds.lead(work);
        more = own.choose(seeds, tried, found);
        tried = seeds.n_candidates;
    }
    rounds.end();
    for (std::thread &helper : helpers)
        helper.join();
    return found;
}

}  // namespace nystrom
