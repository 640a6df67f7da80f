#include <algorithm>
#include <cmath>
#include <limits>

#include "checks.h"
#include "layer_cache.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"
#include "row_layout.h"

namespace h2o {

namespace saved_caches {

/// Offsets and counts must be smaller than this.
constexpr int64_t most_tokens = std::numeric_limits<int>::max();

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

[[noreturn]] void refuse_number(
    const char* part, int64_t found, const std::string& allowed) {
  throw CacheError(
      {cache_codes::header,
       {{"part", part}, {"found", text(found)}, {"allowed", allowed}}});
}

void check_shape(
    const char* part, const mx::array& a, bool fits, const std::string& allowed) {
  // In double, because the product of a hostile shape overflows an integer.
  double bytes = double(a.itemsize());
  for (int axis = 0; axis < int(a.ndim()); ++axis) {
    bytes *= a.shape(axis);
  }
  if (!fits || bytes != double(a.nbytes())) {
    throw CacheError(
        {cache_codes::shape,
         {{"part", part},
          {"shape", text(a.shape())},
          {"dtype", text(a.dtype())},
          {"allowed", allowed}}});
  }
}

void check_array(
    const char* part, const mx::array& a, const mx::Shape& shape, mx::Dtype dtype) {
  check_shape(part, a, a.shape() == shape && a.dtype() == dtype, text(dtype, " ", shape));
}

/// Checks the numbers of a saved cache against each other.
void check_numbers(const SavedCache& saved) {
  const int64_t size = saved.config.max_size, before = saved.offset - saved.unattended;
  for (auto [part, count] :
       {std::pair{"offset", saved.offset},
        {"length", saved.length},
        {"unattended", saved.unattended}}) {
    if (count < 0 || count >= most_tokens) {
      refuse_number(part, count, text("a count below ", most_tokens));
    }
  }
  if (saved.unattended > saved.offset) {
    refuse_number("unattended", saved.unattended, text("at most offset = ", saved.offset));
  }
  const int64_t length = saved.unattended > 1 ? std::min(before, size) + saved.unattended
                                              : std::min(saved.offset, size);
  if (saved.length != length) {
    refuse_number("length", saved.length, text(length, " after ", saved.offset, " tokens"));
  }
  if (const auto& archive = saved.archive) {
    if (!saved.recall) {
      throw CacheError(
          {cache_codes::header,
           {{"part", "configuration"},
            {"found", "no recall"},
            {"allowed", "one with recall"}}});
    }
    const int bits = archive->format.key_bits;
    if (bits != saved.recall->archive_bits) {
      refuse_number("archive's bits", bits, text(saved.recall->archive_bits));
    }
    const auto whole_segments = text("whole segments of at most ", saved.offset, " tokens");
    if (archive->first < 0 || archive->first > saved.offset ||
        archive->first % segment_tokens != 0) {
      refuse_number("archive's first", archive->first, whole_segments);
    }
  }
}

/// The arrays of a saved cache by name.
struct Parts {
  std::vector<mx::array> vectors; // keys and values of the pool, then of the ring
  std::optional<Ledger> ledger;
  std::vector<mx::array> archived;
};

Parts parted(const SavedCache& saved) {
  const bool has_ring = saved.config.format.has_ring(), evicts = saved.config.evicts();
  const bool recalls = saved.archive.has_value();
  std::string names = has_ring ? "keys, values, ring keys, ring values" : "keys, values";
  names += evicts ? ", scores, positions, victim" : "";
  const size_t vectors = has_ring ? 4 : 2, own = vectors + (evicts ? 3 : 0);
  const auto& a = saved.arrays;
  if (a.size() < own || (a.size() > own && !recalls)) {
    throw CacheError(
        {cache_codes::arrays,
         {{"found", text(a.size())},
          {"kind", !evicts    ? "an H2O cache that keeps every token"
                   : has_ring ? "a mixed H2O cache"
                              : "an H2O cache"},
          {"names", names}}});
  }
  Parts parts{{a.begin(), a.begin() + vectors}, std::nullopt, {a.begin() + own, a.end()}};
  if (evicts) {
    parts.ledger = {a[vectors], a[vectors + 1], a[vectors + 2]};
  }
  return parts;
}

/// The dtype of keys and values in rows of these keys.
mx::Dtype dtype_in(const SavedCache& saved, const mx::array& keys) {
  const RowFormat& format = saved.config.format;
  const bool is_own = format.is_all_dense() && is_supported(keys.dtype());
  return is_own ? keys.dtype() : format.dtype;
}

/// Checks shapes and dtypes of keys, values and ledger; returns the heads.
Heads check_shapes(const SavedCache& saved, const Parts& parts) {
  const CacheConfig& config = saved.config;
  const RowFormat& format = config.format;
  const CacheStep step{config, int(saved.offset - saved.unattended), int(saved.unattended)};
  const mx::Dtype vectors = dtype_in(saved, parts.vectors[0]);
  const auto& first = parts.vectors[0];
  const mx::Shape lines =
      first.ndim() == 4 ? mx::Shape{first.shape(0), first.shape(1)} : mx::Shape{0, 0};
  int64_t dims[2] = {0, 0};
  auto check_vectors = [&](size_t at, const char* part, const RowFormat& own, int bits,
                           int used) {
    const mx::array& a = parts.vectors[at];
    RowFormat alone = own;
    alone.key_bits = alone.value_bits = bits;
    const mx::Dtype dtype = own.is_dense() ? vectors : mx::uint32;
    const int64_t dim = a.ndim() == 4 ? value_dim_of(alone, vectors, a.shape(3), 0) : 0;
    auto& expected = dims[at % 2];
    expected = expected == 0 ? dim : expected;
    const bool fits = dim > 0 && dim == expected && a.dtype() == dtype && lines[0] > 0 &&
                      lines[1] > 0 && a.shape(0) == lines[0] && a.shape(1) == lines[1] &&
                      // One of two buffers may have no row in use; it is then saved as one
                      // row of zeros.
                      (format.has_ring() ? a.shape(2) >= used : a.shape(2) == used);
    check_shape(part, a, fits, text(dtype, " rows for ", used, " tokens"));
  };
  check_vectors(0, "keys", format, format.key_bits, step.pool_used());
  check_vectors(1, "values", format, format.value_bits, step.pool_used());
  if (format.has_ring()) {
    const RowFormat ring = format.ring();
    check_vectors(2, "ring keys", ring, ring.key_bits, step.ring_used());
    check_vectors(3, "ring values", ring, ring.value_bits, step.ring_used());
  }
  const Heads heads{lines[0], lines[1], int(dims[0]), int(dims[1])};
  if (parts.ledger) {
    check_each(*parts.ledger, heads.batch, heads.kv_heads, config.max_size, check_array);
  }
  return heads;
}

/// The buffers of the rows.
Rows joined(const std::vector<mx::array>& vectors, mx::StreamOrDevice s) {
  Rows rows{mx::concatenate({vectors[0], vectors[1]}, 3, s)};
  if (vectors.size() > 2) {
    rows.ring = mx::concatenate({vectors[2], vectors[3]}, 3, s);
  }
  return rows;
}

[[noreturn]] void refuse_content(const char* code, const char* part) {
  throw CacheError({code, {{"part", part}}});
}

/// Whether each row has an allowed position, and no two rows have the same one.
bool positions_fit(const SavedCache& saved, const int32_t* positions) {
  const int before = int(saved.offset - saved.unattended);
  const int pool_rows = saved.config.pool_rows(), slots = saved.config.ring_rows();
  const int older = std::max(0, before - slots);
  std::vector<int32_t> in_pool(positions, positions + pool_rows);
  if (older <= pool_rows) { // nothing was evicted: all older positions are there
    if (slots > 0) {        // rows from the ring are not in order of position
      std::sort(in_pool.begin(), in_pool.begin() + older);
    }
    for (int row = 0; row < pool_rows; ++row) {
      if (in_pool[row] != (row < older ? row : -1)) {
        return false;
      }
    }
  } else {
    std::sort(in_pool.begin(), in_pool.end());
    if (in_pool.front() < 0 || in_pool.back() >= older ||
        std::adjacent_find(in_pool.begin(), in_pool.end()) != in_pool.end()) {
      return false;
    }
  }
  for (int slot = 0; slot < slots; ++slot) {
    const int newest = slot < before ? before - 1 - (before - 1 - slot) % slots : -1;
    if (positions[pool_rows + slot] != newest) {
      return false;
    }
  }
  return true;
}

/// Checks the ledger against the rows; evaluates it.
void check_contents(const SavedCache& saved, const Ledger& ledger) {
  auto arrays = arrays_of(ledger);
  for (auto& a : arrays) {
    a = mx::contiguous(a);
  }
  mx::eval(arrays);
  const int size = saved.config.max_size;
  const int heads = int(ledger.victim.size());
  const int64_t before = saved.offset - saved.unattended;
  for (int head = 0; head < heads; ++head) {
    if (!positions_fit(saved, arrays[1].data<int32_t>() + int64_t(head) * size)) {
      refuse_content(cache_codes::positions, "positions");
    }
    const int32_t victim = arrays[2].data<int32_t>()[head];
    if (before < size ? victim != -1 : victim < 0 || victim >= size) {
      refuse_content(cache_codes::victim, "victim");
    }
  }
  const float* scores = arrays[0].data<float>();
  for (const float* x = scores; x < scores + arrays[0].size(); ++x) {
    if (!std::isfinite(*x) || (*x < 0.0f && *x != -1.0f)) {
      refuse_content(cache_codes::numbers, "scores");
    }
  }
}

/// Checks the arrays of the archive: its segments, of which those in files are missing, and its
/// tail.
void check_archived(const SavedCache& saved, const Parts& parts, const Heads& heads) {
  const auto& [first, format, mark] = *saved.archive;
  const int64_t in_files = std::max(mark ? mark->count : 0, first / segment_tokens);
  const int64_t segments = saved.offset / segment_tokens - in_files;
  const int tail = int((saved.offset - first) % segment_tokens);
  const auto& arrays = parts.archived;
  if (segments < 0 || int64_t(arrays.size()) != segments + (tail > 0)) {
    refuse_number(
        "archive's number of arrays", int64_t(arrays.size()), text(segments + (tail > 0)));
  }
  const RowLayout packed =
      make_layouts("restored", format, heads.key_dim, heads.value_dim, format.dtype).pool;
  const mx::Dtype dtype = rows_dtype(packed, format.dtype);
  for (int64_t i = 0; i < segments; ++i) {
    const mx::Shape shape{
        heads.batch, heads.kv_heads, segment_tokens, row_width(packed, dtype)};
    check_array("archive", arrays[i], shape, dtype);
  }
  if (tail > 0) {
    const mx::Shape shape{
        heads.batch, heads.kv_heads, tail, heads.key_dim + heads.value_dim};
    check_array("archive's newest tokens", arrays.back(), shape, format.dtype);
  }
}

} // namespace saved_caches

LayerCache LayerCache::restored(SavedCache saved, mx::StreamOrDevice s) {
  using namespace saved_caches;
  LayerCache cache(saved.config, saved.recall);
  check_numbers(saved);
  if (saved.arrays.empty() && saved.offset == 0) {
    return cache; // all tokens may have been trimmed
  }
  cache.is_shared_ = true;
  cache.offset_ = int(saved.offset);
  cache.length_ = int(saved.length);
  cache.unattended_ = int(saved.unattended);
  Parts parts = parted(saved);
  const Heads heads = check_shapes(saved, parts);
  if (parts.ledger) {
    check_contents(saved, *parts.ledger);
  }
  cache.set_heads(heads, s);
  if (saved.archive) {
    const auto& [first, format, mark] = *saved.archive;
    const bool is_whole =
        heads.key_dim % format.group_size == 0 && heads.value_dim % format.group_size == 0;
    if (!format.is_dense() && !is_whole) {
      throw CacheError({cache_codes::archive_group, {}});
    }
    check_archived(saved, parts, heads);
    std::shared_ptr<SegmentFolder> folder;
    if (mark) {
      folder = std::make_shared<SegmentFolder>(saved.recall->store, mark);
    }
    cache.archive_ = Archive::restored(
        parts.archived, *saved.recall, format, heads, int(first), int(saved.offset),
        std::move(folder), s);
    mx::eval(cache.archive_->arrays(s)); // only this thread can do the queued work
  }
  cache.recall_ended_ = !saved.archive;
  cache.rows_ = joined(parts.vectors, s);
  cache.ledger_ = std::move(parts.ledger);
  return cache;
}

} // namespace h2o
