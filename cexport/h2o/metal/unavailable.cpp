#include "build.h"
#if !H2O_METAL

#include <stdexcept>

#include "encode.h"

namespace h2o::metal {

namespace {

[[noreturn]] void refuse() {
  throw std::logic_error("[h2o] This build has no Metal kernels.");
}

} // namespace

bool supports(const CallShape&) {
  return false;
}

void attend(mx::Stream, const Attention&, mx::array&, mx::array*) {
  refuse();
}

void update_ledger(
    mx::Stream,
    const LedgerUpdate&,
    const std::vector<mx::array>&,
    std::vector<mx::array>&) {
  refuse();
}

void carry_over(mx::Stream, const mx::array&, int, bool, mx::array&) {
  refuse();
}

void write(
    mx::Stream,
    const CacheStep&,
    const Layouts&,
    const NewTokens&,
    std::vector<mx::array>&) {
  refuse();
}

} // namespace h2o::metal

#endif
