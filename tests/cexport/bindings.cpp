// What only tests call of the core: the functions and classes of which h2o::LayerCache is made.
// A module that is built in a checkout has them too.
#include <nanobind/stl/shared_ptr.h>

#include "archive_files.h"
#include "conversions.h"
#include "fallback.h"
#include "kernels.h"
#include "mlx/ops.h"
#include "policy_from.h"
#include "reading.h"
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
    int64_t key_bytes,
    const std::string& format,
    bool may_wait) {
  const int64_t heads = rows.shape(0) * rows.shape(1);
  const h2o::SegmentShape shape{
      heads, key_bytes, static_cast<int64_t>(rows.shape(3) * rows.itemsize()) - key_bytes};
  auto keeper = std::make_shared<mx::array>(rows);
  keeper->eval();
  nb::gil_scoped_release release;
  return folder.append(format, shape, keeper->data<char>(), keeper, may_wait);
}

/// Keys and values of the tokens at positions [begin, end), in float32; rotated if the rows of
/// the cache are rotated.
std::pair<mx::array, mx::array> tokens_of(h2o::Archive& archive, int begin, int end) {
  if (begin < archive.first() || begin >= end || end > archive.length()) {
    throw std::invalid_argument("[Archive] These positions are not all there.");
  }
  std::vector<mx::array> keys, values;
  auto add = [&](const mx::array& rows, const h2o::RowLayout& layout,
                 const h2o::RowFormat& format) {
    auto part = [&](const h2o::VectorLayout& vector) {
      return mx::astype(h2o::unpacked(rows, vector, format, mx::float32, {}), mx::float32);
    };
    keys.push_back(part(layout.key));
    values.push_back(part(layout.value));
  };
  const auto layout = archive.layout();
  for (int i = 0; i < archive.files().stored(); ++i) {
    add(archive.files().load(i, archive.heads(), archive.format().dtype, layout), layout,
        archive.format());
  }
  for (const auto& segment : archive.segments()) {
    add(segment, layout, archive.format());
  }
  if (archive.tail_tokens() > 0) {
    const auto tail = h2o::sliced(archive.tail()->pool, 2, 0, archive.tail_tokens(), {});
    add(tail, archive.tail_layout(), {});
  }
  auto cut = [&](const std::vector<mx::array>& parts) {
    return h2o::sliced(
        mx::concatenate(parts, 2), 2, begin - archive.first(), end - archive.first(), {});
  };
  return {cut(keys), cut(values)};
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
      "matching_positions",
      [](const ArchiveOf& archive, const mx::array& queries, float scale,
         const mx::array& kept, int end, int reach, bool in_operations) {
        return archive.with([&](h2o::Archive& core) {
          return h2o::matching_positions(
              {queries, scale, kept, end, in_operations}, reach, core);
        });
      },
      "archive"_a, "queries"_a, nb::kw_only(), "scale"_a, "kept"_a, "end"_a, "reach"_a,
      "in_operations"_a = false);

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

  nb::class_<h2o::SegmentFolder>(m, "SegmentFolder")
      .def("append", &append, "rows"_a, "key_bytes"_a, "row_format"_a, "may_wait"_a)
      .def(
          "row",
          [](h2o::SegmentFolder& folder, int64_t serial, int token, int head,
             int64_t size) -> std::optional<nb::bytes> {
            const auto segment = folder.opened(serial);
            if (!segment || !segment->is_intact()) {
              return std::nullopt;
            }
            return nb::bytes(segment->row(token, head), size);
          },
          "serial"_a, "token"_a, "head"_a, "size"_a)
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
  bind_attend(m, "attend_in_operations", &h2o::fallback::cache_attend);
}

} // namespace h2o::python
