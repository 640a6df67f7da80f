#include "mlx/c/h2o_archive.h"

#include "archive_files_of.h"
#include "c_conversions.h"
#include "recall.h"

using namespace h2o::c;

namespace {

mlx_dtype c_dtype_of(mlx::core::Dtype dtype) {
  if (dtype == mlx::core::float16) {
    return MLX_FLOAT16;
  }
  return dtype == mlx::core::bfloat16 ? MLX_BFLOAT16 : MLX_FLOAT32;
}

h2o::Archive& archive_of(const mlx_h2o_archive& archive) {
  if (!archive.ctx) {
    throw std::invalid_argument("an mlx_h2o_archive is empty where one is needed");
  }
  return *static_cast<h2o::Archive*>(archive.ctx);
}

void set_archive(mlx_h2o_archive* result, h2o::Archive archive) {
  if (result->ctx) {
    archive_of(*result) = std::move(archive);
  } else {
    result->ctx = new h2o::Archive(std::move(archive));
  }
}

} // namespace

extern "C" mlx_h2o_archive mlx_h2o_archive_new(void) {
  return mlx_h2o_archive{nullptr};
}

extern "C" int mlx_h2o_archive_init(
    mlx_h2o_archive* res,
    const mlx_h2o_recall recall,
    int group_size,
    const mlx_h2o_archive_folder folder) {
  return guarded([&] {
    set_archive(
        res, h2o::Archive(h2o::recall_of(recall), group_size, h2o::folder_of(folder)));
  });
}

extern "C" int mlx_h2o_archive_restore(
    mlx_h2o_archive* res,
    mlx_h2o_archive_failure* failure,
    const mlx_vector_array arrays,
    const mlx_h2o_recall recall,
    const mlx_h2o_archive_state state,
    int key_dim,
    const mlx_h2o_archive_folder folder) {
  return h2o::with_failure(failure, [&] {
    const h2o::RowFormat format = {
        state.bits, state.bits, state.group_size, dtype_of(state.dtype)};
    set_archive(
        res, h2o::Archive::restored(
                 mlx_vector_array_get_(arrays), h2o::recall_of(recall), format, key_dim,
                 state.first, state.length, h2o::folder_of(folder)));
  });
}

extern "C" int mlx_h2o_archive_copy(mlx_h2o_archive* res, const mlx_h2o_archive src) {
  return guarded([&] { set_archive(res, archive_of(src)); });
}

extern "C" int mlx_h2o_archive_free(mlx_h2o_archive archive) {
  delete static_cast<h2o::Archive*>(archive.ctx);
  return 0;
}

extern "C" int mlx_h2o_archive_append(
    mlx_h2o_archive archive,
    const mlx_array keys,
    const mlx_array values,
    const mlx_array key_sum,
    const mlx_h2o_config config,
    const mlx_stream s) {
  return guarded([&] {
    archive_of(archive).append(
        mlx_array_get_(keys), mlx_array_get_(values), mlx_array_get_(key_sum),
        config_of(config), mlx_stream_get_(s));
  });
}

extern "C" int mlx_h2o_archive_trim(mlx_h2o_archive archive, int n, const mlx_stream s) {
  return guarded([&] { archive_of(archive).trim(n, mlx_stream_get_(s)); });
}

extern "C" int mlx_h2o_archive_arrays(
    mlx_vector_array* res, const mlx_h2o_archive archive, const mlx_stream s) {
  return guarded(
      [&] { mlx_vector_array_set_(*res, archive_of(archive).arrays(mlx_stream_get_(s))); });
}

extern "C" int mlx_h2o_archive_get_state(
    mlx_h2o_archive_state* res, const mlx_h2o_archive archive) {
  return guarded([&] {
    const h2o::Archive& known = archive_of(archive);
    const h2o::RowFormat& format = known.format();
    *res = {known.length(),           known.first(),
            format.key_bits,          format.group_size,
            c_dtype_of(format.dtype), int64_t(known.nbytes())};
  });
}

extern "C" int mlx_h2o_archive_get_mark(
    mlx_h2o_archive_mark* res, bool* has_files, const mlx_h2o_archive archive) {
  return guarded([&] {
    const std::optional<h2o::ArchiveMark> mark = archive_of(archive).files().mark();
    *has_files = mark.has_value();
    *res = mark ? h2o::mark_of(*mark) : mlx_h2o_archive_mark{};
  });
}

extern "C" int mlx_h2o_archive_get_failure(
    mlx_h2o_archive_failure* res, const mlx_h2o_archive archive) {
  return guarded([&] { h2o::set_failure(res, archive_of(archive).failure()); });
}

extern "C" int mlx_h2o_recall_rows(
    mlx_h2o_rows* rows_out,
    mlx_h2o_ledger* ledger_out,
    int* count,
    const mlx_h2o_recall_arguments arguments,
    const mlx_h2o_config config,
    const mlx_stream s) {
  return guarded([&] {
    const h2o::RecallArguments given = {
        mlx_array_get_(arguments.queries),
        mlx_array_get_(arguments.keys),
        {rows_of(arguments.rows), ledger_of(arguments.ledger),
         archive_of(arguments.archive), arguments.offset},
        arguments.scale,
        h2o::make_mask(
            arguments.mask_mode ? arguments.mask_mode : "",
            optional_array(arguments.mask_arr)),
        optional_array(arguments.sinks)};
    const h2o::Recalled recalled =
        h2o::recall(given, config_of(config), mlx_stream_get_(s));
    set_rows(rows_out, recalled.rows);
    set_ledger(ledger_out, recalled.ledger);
    *count = recalled.count;
  });
}
