// What only tests call of the core: the functions and classes of which h2o::LayerCache is made.
// A module that is built in a checkout has them too.
#include <nanobind/stl/shared_ptr.h>

#include "archive_files.h"
#include "choice.h"
#include "conversions.h"
#include "fallback.h"
#include "kernels.h"
#include "mlx/ops.h"
#include "policy_from.h"
#include "recall.h"
#include "shared_cache.h"

namespace nb = nanobind;
namespace mx = mlx::core;
using namespace nb::literals;

namespace h2o::python {

namespace {

using MarkTuple = std::tuple<std::string, int64_t, std::string>; // session, count, chain

std::optional<MarkTuple> optional_mark(const std::optional<ArchiveMark>& mark) {
  return mark ? std::optional(MarkTuple{mark->session, mark->count, mark->chain})
              : std::nullopt;
}

using FailureTuple = std::tuple<std::string, std::string, int>; // code, path, errno

std::optional<FailureTuple> optional_failure(const std::optional<ArchiveFailure>& failure) {
  return failure ? std::optional(FailureTuple{failure->code, failure->path, failure->error})
                 : std::nullopt;
}

int64_t append(
    h2o::SegmentFolder& folder,
    const mx::array& rows,
    const mx::array& novelty,
    int64_t key_bytes,
    const std::string& format,
    bool may_wait) {
  const int64_t heads = rows.shape(0) * rows.shape(1);
  const h2o::SegmentShape shape{
      heads, key_bytes, static_cast<int64_t>(rows.shape(3) * rows.itemsize()) - key_bytes};
  using Kept = std::pair<mx::array, mx::array>;
  auto keeper = std::make_shared<Kept>(rows, novelty);
  keeper->first.eval();
  keeper->second.eval();
  nb::gil_scoped_release release;
  return folder.append(
      format, shape, keeper->first.data<char>(), keeper->second.data<char>(), keeper,
      may_wait);
}

/// Keys, values and novelty [B, Hkv, n] of the tokens at positions [begin, end), in float32;
/// rotated if the rows of the cache are rotated.
std::tuple<mx::array, mx::array, mx::array> tokens_of(
    h2o::Archive& archive, int begin, int end) {
  if (begin < archive.first() || begin >= end || end > archive.length()) {
    throw std::invalid_argument("[Archive] These positions are not all there.");
  }
  const h2o::RowFormat& format = archive.format();
  const mx::Shape heads{archive.batch(), archive.kv_heads()};
  const auto layout = archive.layout();
  std::vector<mx::array> rows, novelty;
  auto add = [&](const h2o::ArchiveBlock& block) {
    rows.push_back(block.rows);
    novelty.push_back(block.novelty);
  };
  const auto& in_memory = archive.blocks();
  for (int i = 0; i < archive.files().stored(); ++i) {
    add(archive.files().load(i, heads, h2o::rows_dtype(layout, format.dtype), layout));
  }
  std::for_each(in_memory.begin(), in_memory.end(), add);
  auto cut = [&](const std::vector<mx::array>& parts) {
    return h2o::sliced(
        mx::concatenate(parts, 2), 2, begin - archive.first(), end - archive.first(), {});
  };
  const auto [keys, values] =
      h2o::unpacked_rows(cut(rows), format, archive.key_dim(), mx::float32, {});
  return {mx::astype(keys, mx::float32), mx::astype(values, mx::float32), cut(novelty)};
}

} // namespace

void bind_for_tests(nb::module_& m, nb::class_<ArchiveOf>& archive) {
  archive
      .def_prop_ro("mark", locked<ArchiveOf>([](h2o::Archive& core) {
                     return optional_mark(core.files().mark());
                   }))
      .def_prop_ro("bits", locked<ArchiveOf>([](h2o::Archive& core) {
                     return core.format().key_bits;
                   }))
      .def_prop_ro("dtype", locked<ArchiveOf>([](h2o::Archive& core) {
                     return core.format().dtype;
                   }))
      .def_prop_ro("group_size", locked<ArchiveOf>([](h2o::Archive& core) {
                     return core.format().group_size;
                   }))
      .def_prop_ro(
          "arrays", locked<ArchiveOf>([](h2o::Archive& core) { return core.arrays(); }))
      .def(
          "rows",
          [](const ArchiveOf& archive, int begin, int end) {
            return archive.with(
                [&](h2o::Archive& core) { return tokens_of(core, begin, end); });
          },
          "begin"_a, "end"_a)
      .def_prop_ro("failure", locked<ArchiveOf>([](h2o::Archive& core) {
                     return optional_failure(core.failure());
                   }))
      .def("flush", locked<ArchiveOf>([](h2o::Archive& core) {
             return core.files().flush();
           }));

  m.def(
      "while_in_use",
      [](SharedCache& cache, nb::callable work) {
        cache.with([&](auto&) {
          nb::gil_scoped_acquire acquire;
          work();
          return 0;
        });
      },
      "cache"_a, "work"_a);

  m.def(
      "chosen_positions",
      [](const mx::array& asked_for, int first, int seen, int rows,
         const h2o::CacheConfig& config, nb::handle recall) {
        return h2o::chosen_positions(
            asked_for, first, seen, rows, config, recall_from(recall).value());
      },
      "asked_for"_a, nb::kw_only(), "first"_a, "seen"_a, "rows"_a, "config"_a, "recall"_a);

  nb::class_<h2o::Ballot>(m, "Ballot")
      .def(nb::init<int>(), "seen"_a)
      .def(
          "add",
          [](h2o::Ballot& ballot, int layer, const mx::array& strongest, int first,
             const h2o::CacheConfig& config, nb::handle recall) {
            ballot.add(layer, strongest, first, config, recall_from(recall).value());
          },
          "layer"_a, "strongest"_a, "first"_a, "config"_a, "recall"_a)
      .def("chosen", [](h2o::Ballot& ballot) { return ballot.chosen(); });

  nb::class_<h2o::SegmentFolder>(m, "SegmentFolder")
      .def(
          "append", &append, "rows"_a, "novelty"_a, "key_bytes"_a, "row_format"_a,
          "may_wait"_a)
      .def(
          "read",
          [](h2o::SegmentFolder& folder, int64_t serial, int part, int64_t head,
             int64_t size) -> std::optional<nb::bytes> {
            std::string to(static_cast<size_t>(size), '\0');
            if (!folder.read(serial, static_cast<h2o::Part>(part), head, to.data(), size)) {
              return std::nullopt;
            }
            return nb::bytes(to.data(), to.size());
          },
          "serial"_a, "part"_a, "head"_a, "size"_a)
      .def("drop_oldest", &h2o::SegmentFolder::drop_oldest)
      .def("drop_newest", &h2o::SegmentFolder::drop_newest)
      .def("flush", &h2o::SegmentFolder::flush, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("path", &h2o::SegmentFolder::path)
      .def_prop_ro("serials", &h2o::SegmentFolder::serials)
      .def("is_written", &h2o::SegmentFolder::is_written, "serial"_a)
      .def(
          "mark",
          [](const h2o::SegmentFolder& folder, int64_t newest) {
            return optional_mark(folder.mark(newest));
          },
          "newest"_a)
      .def_prop_ro("failure", [](const h2o::SegmentFolder& folder) {
        return optional_failure(folder.failure());
      });

  m.def(
      "open_segment_folder",
      [](const std::string& path, const std::optional<MarkTuple>& mark) {
        std::optional<h2o::ArchiveMark> at;
        if (mark) {
          at = {std::get<0>(*mark), std::get<1>(*mark), std::get<2>(*mark)};
        }
        return std::make_shared<h2o::SegmentFolder>(path, at);
      },
      "path"_a, "mark"_a = nb::none(), nb::call_guard<nb::gil_scoped_release>());

  m.def("instruction_sets", &h2o::cpu::instruction_sets);
  m.def("use_instruction_set", &h2o::cpu::use_instruction_set);

  // What a GPU runs for calls that the kernels do not take.
  m.def(
      "attention_in_operations",
      [](const mx::array& queries, const mx::array& keys, const mx::array& values,
         float scale, const MaskArgument& mask, const std::optional<mx::array>& sinks) {
        return h2o::fallback::scaled_dot_product_attention_with_scores(
            queries, keys, values, scale, mask_of(mask), sinks, {});
      },
      "queries"_a, "keys"_a, "values"_a, nb::kw_only(), "scale"_a, "mask"_a = nb::none(),
      "sinks"_a = nb::none());
  m.def(
      "attend_in_operations",
      [](const std::optional<mx::array>& queries, const RowsTuple& rows,
         const LedgerTuple& ledger, int tokens, int offset, const h2o::CacheConfig& config,
         float scale, const MaskArgument& mask, const std::optional<mx::array>& sinks) {
        const h2o::AttendArguments arguments{
            queries, to_rows(rows), to_ledger(ledger), tokens,
            offset,  scale,         mask_of(mask),     sinks};
        h2o::check_attend(arguments, config);
        auto result = h2o::fallback::cache_attend(arguments, config, {});
        return std::tuple{result.out, to_tuple(result.rows), to_tuple(result.ledger)};
      },
      "queries"_a.none(), "rows"_a, "ledger"_a, nb::kw_only(), "tokens"_a, "offset"_a,
      "config"_a, "scale"_a = 1.0f, "mask"_a = nb::none(), "sinks"_a = nb::none());
}

} // namespace h2o::python
