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
      cache_codes::header, {{"part", part}, {"found", text(found)}, {"allowed", allowed}});
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
        cache_codes::shape, {{"part", part},
                             {"shape", text(a.shape())},
                             {"dtype", text(a.dtype())},
                             {"allowed", allowed}});
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
    if (!saved.recall || recall_rows(saved.config, *saved.recall) < 1) {
      throw CacheError(
          cache_codes::header, {{"part", "configuration"},
                                {"found", "no recall"},
                                {"allowed", "one with recall"}});
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
    if (archive->since < 0 || archive->since > saved.offset) {
      refuse_number("archive's since", archive->since, text("at most ", saved.offset));
    }
  }
}

/// The arrays of a saved cache by name.
struct Parts {
  Rows rows;
  Ledger ledger;
  std::optional<mx::array> chosen;
  std::vector<mx::array> archived;
};

Parts parted(const SavedCache& saved) {
  const bool has_ring = saved.config.format.has_ring(), recalls = saved.archive.has_value();
  std::string names = has_ring ? "pool, ring" : "rows";
  names += ", scores, positions, novelty, key_sum, victim";
  names += recalls ? ", held" : "";
  const size_t buffers = has_ring ? 2 : 1, own = buffers + 5 + (recalls ? 1 : 0);
  const auto& a = saved.arrays;
  if (a.size() < own || (a.size() > own && !recalls)) {
    throw CacheError(
        cache_codes::arrays, {{"found", text(a.size())},
                              {"kind", has_ring ? "a mixed H2O cache" : "an H2O cache"},
                              {"names", names}});
  }
  const auto* ledger = a.data() + buffers;
  const bool has_chosen =
      (a.size() - own) % 2 == 1; // the archive has an even number of arrays
  Parts parts{
      rows_from(a.begin(), a.begin() + buffers),
      {ledger[0], ledger[1], ledger[2], ledger[3], ledger[4]},
      {},
      {a.begin() + own + (has_chosen ? 1 : 0), a.end()}};
  if (recalls) {
    parts.ledger.held = ledger[5];
  }
  if (has_chosen) {
    parts.chosen = a[own];
  }
  return parts;
}

/// The head dim of values in saved rows; 0 if no values fit beside such keys.
int64_t value_dim_in(
    const mx::array& rows, const RowFormat& format, mx::Dtype dtype, int key_dim) {
  const bool fits =
      rows.ndim() == 4 && (format.is_dense() || key_dim % format.group_size == 0);
  return fits ? std::max<int64_t>(0, value_dim_of(format, dtype, rows.shape(3), key_dim))
              : 0;
}

/// Checks shapes and dtypes; returns the head dim of values.
int64_t check_shapes(const SavedCache& saved, const Parts& parts) {
  const auto& [rows, ledger, chosen, archived] = parts;
  const CacheConfig& config = saved.config;
  const auto& key_sum = ledger.key_sum;
  const bool has_heads = key_sum.ndim() == 3 && key_sum.size() > 0;
  check_shape(
      "key_sum", key_sum, has_heads && key_sum.dtype() == mx::float32,
      "float32 [B, Hkv, Dk]");
  const int batch = key_sum.shape(0), heads = key_sum.shape(1), key_dim = key_sum.shape(2);
  check_each(ledger, batch, heads, config.max_size, key_dim, check_array);
  if (chosen) {
    const bool has_positions =
        chosen->ndim() == 2 && chosen->shape(1) > 0 && chosen->shape(1) <= saved.offset;
    check_shape(
        "chosen", *chosen,
        has_positions && chosen->shape(0) == batch && chosen->dtype() == mx::int32,
        text("int32 [", batch, ", at most ", saved.offset, "]"));
  }
  const int before = int(saved.offset - saved.unattended),
            unattended = int(saved.unattended);
  const CacheStep step{config, before, unattended};
  const RowFormat& format = config.format;
  const mx::Dtype dense = format.is_all_dense() && is_supported(rows.pool.dtype())
                              ? rows.pool.dtype()
                              : format.dtype;
  int64_t value_dim = 0;
  auto check_rows = [&](const char* part, const mx::array& a, const RowFormat& own,
                        int used) {
    const mx::Dtype dtype = own.is_dense() ? dense : mx::uint32;
    const int64_t dim = value_dim_in(a, own, dense, key_dim);
    value_dim = value_dim == 0 ? dim : value_dim;
    const bool fits = dim > 0 && dim == value_dim && a.dtype() == dtype &&
                      a.shape(0) == batch && a.shape(1) == heads &&
                      // One of two buffers may have no row in use; it is then saved as one
                      // row of zeros.
                      (format.has_ring() ? a.shape(2) >= used : a.shape(2) == used);
    check_shape(
        part, a, fits,
        text(
            dtype, " rows for ", used, " tokens of ", before, " in ", batch, " x ", heads));
  };
  check_rows("rows", rows.pool, format, step.pool_used());
  if (rows.ring) {
    check_rows("ring", *rows.ring, format.ring(), step.ring_used());
  }
  return value_dim;
}

[[noreturn]] void refuse_content(const char* code, const char* part) {
  throw CacheError(code, {{"part", part}});
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

/// Each position must be a position that the cache has seen, or -1. Evaluates `chosen`.
void check_chosen(const SavedCache& saved, const mx::array& chosen) {
  auto positions = mx::contiguous(chosen);
  positions.eval();
  const int32_t* first = positions.data<int32_t>();
  if (!std::all_of(first, first + positions.size(), [&](int32_t position) {
        return position >= -1 && position < saved.offset;
      })) {
    refuse_content(cache_codes::positions, "chosen");
  }
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
    const int32_t victim = arrays[4].data<int32_t>()[head];
    if (before < size ? victim != -1 : victim < 0 || victim >= size) {
      refuse_content(cache_codes::victim, "victim");
    }
    if (ledger.held) {
      // A bool in a file may be a byte other than 0 and 1.
      const uint8_t* held = arrays[5].data<uint8_t>() + int64_t(head) * size;
      if (std::any_of(held, held + size, [](uint8_t byte) { return byte > 1; }) ||
          std::count(held, held + size, 1) > most_recall_rows(saved.config)) {
        refuse_content(cache_codes::numbers, "held");
      }
    }
  }
  auto check_finite = [&](const char* part, const mx::array& a, float least) {
    const float* first = a.data<float>();
    for (const float* x = first; x < first + a.size(); ++x) {
      if (!std::isfinite(*x) || (*x < least && *x != -1.0f)) {
        refuse_content(cache_codes::numbers, part);
      }
    }
  };
  check_finite("scores", arrays[0], 0.0f);
  check_finite("novelty", arrays[2], std::numeric_limits<float>::lowest());
  check_finite("key_sum", arrays[3], std::numeric_limits<float>::lowest());
}

/// Checks the arrays of the archive. For an archive in files, they contain only its newest
/// tokens.
void check_archived(const SavedCache& saved, const Parts& parts, int64_t value_dim) {
  const auto& [first, since, format, mark] = *saved.archive;
  std::vector<int> counts((saved.offset - first) / segment_tokens, segment_tokens);
  if (const int rest = int((saved.offset - first) % segment_tokens)) {
    counts.push_back(rest);
  }
  const auto& arrays = parts.archived;
  if (mark) {
    const size_t in_memory = std::min(counts.size(), arrays.size() / 2);
    counts.erase(counts.begin(), counts.end() - in_memory);
  }
  if (arrays.size() != 2 * counts.size()) {
    refuse_number(
        "archive's number of arrays", int64_t(arrays.size()), text(2 * counts.size()));
  }
  const auto& key_sum = parts.ledger.key_sum;
  const int batch = key_sum.shape(0), heads = key_sum.shape(1), key_dim = key_sum.shape(2);
  std::vector<mx::array> finite;
  for (size_t block = 0; block < counts.size(); ++block) {
    const auto &rows = arrays[2 * block], &novelty = arrays[2 * block + 1];
    const mx::Shape lines{batch, heads, counts[block]};
    const mx::Dtype dtype = format.is_dense() ? format.dtype : mx::uint32;
    const bool fits = rows.ndim() == 4 && rows.dtype() == dtype &&
                      mx::Shape(rows.shape().begin(), rows.shape().end() - 1) == lines &&
                      value_dim_in(rows, format, format.dtype, key_dim) == value_dim;
    check_shape("archive", rows, fits, text(dtype, " rows of ", counts[block], " tokens"));
    check_array("archive's novelty", novelty, lines, mx::float32);
    finite.push_back(mx::all(mx::isfinite(novelty)));
  }
  mx::eval(finite);
  for (auto& is_finite : finite) {
    if (!is_finite.item<bool>()) {
      refuse_content(cache_codes::numbers, "archive");
    }
  }
}

/// The rows of a cache that does not evict, from its saved keys and values, and its heads
/// [B, Hkv, Dk].
std::pair<mx::array, mx::Shape> full_rows(const SavedCache& saved) {
  const auto& arrays = saved.arrays;
  if (arrays.size() != 2 || saved.archive) {
    throw CacheError(
        cache_codes::arrays, {{"found", text(arrays.size())},
                              {"kind", "an H2O cache that keeps every token"},
                              {"names", "keys, values"}});
  }
  const auto &keys = arrays[0], &values = arrays[1];
  const RowFormat& format = saved.config.format;
  const mx::Dtype vectors =
      format.is_dense() && is_supported(keys.dtype()) ? keys.dtype() : format.dtype;
  const mx::Dtype dtype = format.is_dense() ? vectors : mx::uint32;
  auto dim_of = [&](const char* part, const mx::array& a, int bits) {
    RowFormat own = format;
    own.value_bits = bits;
    const int64_t dim = a.ndim() == 4 ? value_dim_of(own, vectors, a.shape(3), 0) : 0;
    const bool fits = dim > 0 && a.dtype() == dtype && a.shape(0) > 0 && a.shape(1) > 0 &&
                      a.shape(2) == saved.offset && a.shape(0) == keys.shape(0) &&
                      a.shape(1) == keys.shape(1);
    check_shape(part, a, fits, text(dtype, " rows for ", saved.offset, " tokens"));
    return dim;
  };
  const int key_dim = int(dim_of("keys", keys, format.key_bits));
  dim_of("values", values, format.value_bits);
  return {mx::concatenate(arrays, 3), {keys.shape(0), keys.shape(1), key_dim}};
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
  if (!saved.config.evicts()) {
    auto [rows, heads] = full_rows(saved);
    cache.rows_ = {std::move(rows)};
    cache.set_heads(std::move(heads), s);
    return cache;
  }
  Parts parts = parted(saved);
  const int64_t value_dim = check_shapes(saved, parts);
  check_contents(saved, parts.ledger);
  if (parts.chosen) {
    check_chosen(saved, *parts.chosen);
  }
  if (saved.archive) {
    check_archived(saved, parts, value_dim);
    const auto& [first, since, format, mark] = *saved.archive;
    std::shared_ptr<SegmentFolder> folder;
    if (mark) {
      folder = std::make_shared<SegmentFolder>(saved.recall->store, mark);
    }
    cache.archive_ = Archive::restored(
        parts.archived, *saved.recall, format, parts.ledger.key_sum.shape(2), int(first),
        int(saved.offset), std::move(folder));
    mx::eval(cache.archive_->arrays()); // only this thread can do the queued work
    cache.since_ = int(since);
    cache.chosen_ = std::move(parts.chosen);
  }
  cache.recall_ended_ = !saved.archive;
  cache.rows_ = std::move(parts.rows);
  cache.set_heads(parts.ledger.key_sum.shape(), s);
  cache.ledger_ = std::move(parts.ledger);
  return cache;
}

} // namespace h2o
