#include "build.h"
#if !H2O_METAL

#include <stdexcept>

#include "encode.h"

namespace h2o::metal {

namespace {

[[noreturn]] void no_kernels() {
  throw std::logic_error("[h2o] This build has no Metal kernels.");
}

} // namespace

bool supports(const CallShape&) {
  return false;
}

void compile_kernel(const std::string&, const std::vector<std::string>&) {
  no_kernels();
}

std::map<std::string, PipelineThreads> scoring_pipelines() {
  return {};
}

void attend(mx::Stream, const Attention&, mx::array&, mx::array*) {
  no_kernels();
}

void update_ledger(
    mx::Stream,
    const LedgerUpdate&,
    const std::vector<mx::array>&,
    std::vector<mx::array>&) {
  no_kernels();
}

void carry_over(mx::Stream, const mx::array&, int, bool, mx::array&) {
  no_kernels();
}

void write(
    mx::Stream,
    const CacheStep&,
    const Layouts&,
    const NewTokens&,
    std::vector<mx::array>&) {
  no_kernels();
}

} // namespace h2o::metal

#endif
