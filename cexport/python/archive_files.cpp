#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "archive_files.h"
#include "conversions.h"
#include "mlx/array.h"
#include "segment_folder.h"

namespace nb = nanobind;
namespace mx = mlx::core;
using namespace nb::literals;

using namespace h2o::python;

namespace {

constexpr int64_t most_part_bytes = int64_t(1) << 30;

int64_t append(
    h2o::SegmentFolder& folder,
    const mx::array& rows,
    const mx::array& novelty,
    int64_t key_bytes,
    const std::string& format,
    bool may_wait) {
  const bool fits =
      rows.ndim() == 4 && rows.size() > 0 && rows.shape(2) == h2o::segment_tokens &&
      novelty.shape() == mx::Shape(rows.shape().begin(), rows.shape().end() - 1) &&
      novelty.dtype() == mx::float32 && 0 < key_bytes &&
      key_bytes < static_cast<int64_t>(rows.shape(3) * rows.itemsize());
  if (!fits) {
    throw std::invalid_argument(
        "append takes rows [B, Hkv, 256, row], novelty [B, Hkv, 256] in float32 and a key "
        "smaller than a row.");
  }
  const int64_t heads = rows.shape(0) * rows.shape(1);
  const h2o::SegmentShape shape{
      heads, key_bytes, static_cast<int64_t>(rows.shape(3) * rows.itemsize()) - key_bytes};
  using Kept = std::pair<mx::array, mx::array>;
  auto keeper = std::make_shared<Kept>(rows, novelty);
  keeper->first.eval();
  keeper->second.eval();
  if (!keeper->first.flags().row_contiguous || !keeper->second.flags().row_contiguous) {
    throw std::invalid_argument("append takes rows and novelty that are contiguous.");
  }
  nb::gil_scoped_release release;
  return folder.append(
      format, shape, keeper->first.data<char>(), keeper->second.data<char>(), keeper,
      may_wait);
}

} // namespace

namespace h2o::python {

void bind_archive_files(nb::module_& m) {
  nb::class_<h2o::SegmentFolder>(m, "SegmentFolder")
      .def(
          "append", &append, "rows"_a, "novelty"_a, "key_bytes"_a, "row_format"_a,
          "may_wait"_a)
      .def(
          "read",
          [](h2o::SegmentFolder& folder, int64_t serial, int part, int64_t head,
             int64_t size) -> std::optional<nb::bytes> {
            if (part < 0 || part > static_cast<int>(h2o::Part::novelty) || size < 0 ||
                size > most_part_bytes) {
              return std::nullopt;
            }
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
      .def_prop_ro("dropped", &h2o::SegmentFolder::dropped)
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
        return or_failure<std::shared_ptr<h2o::SegmentFolder>>([&] {
          nb::gil_scoped_release release;
          std::optional<h2o::ArchiveMark> at;
          if (mark) {
            at = {std::get<0>(*mark), std::get<1>(*mark), std::get<2>(*mark)};
          }
          return std::make_shared<h2o::SegmentFolder>(path, at);
        });
      },
      "path"_a, "mark"_a = nb::none());

  m.def(
      "delete_archive",
      [](const std::string& folder) {
        return or_failure<bool>([&] {
          h2o::delete_archive(folder);
          return true;
        });
      },
      "folder"_a);

  m.def(
      "delete_stale_archives",
      [](const std::string& root, const std::vector<std::string>& keep) {
        return or_failure<std::vector<std::string>>(
            [&] { return h2o::delete_stale_archives(root, keep); });
      },
      "root"_a, "keep"_a);
}

} // namespace h2o::python
