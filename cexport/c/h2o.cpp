#include "mlx/c/h2o.h"

#include <mutex>

#include "archive_files.h"
#include "handles.h"
#include "mlx/c/private/mlx.h"

namespace h2o::c {

namespace mx = mlx::core;

thread_local LastError last_error;

/// The callback that receives notices of caches.
struct NoticeHandler {
  mlx_h2o_notice_handler handler = nullptr;
  std::shared_ptr<void> data;
};

std::mutex notice_mutex;
NoticeHandler notice_handler;

/// A cache, and the texts that its last call returned.
struct LayerHandle {
  LayerCache cache;
  std::optional<ArchiveMark> mark;
};

LayerHandle& handle_of(const mlx_h2o_layer_cache& cache) {
  return held_by<LayerHandle>(cache, "mlx_h2o_layer_cache");
}

LayerCache& cache_of(const mlx_h2o_layer_cache& cache) {
  return handle_of(cache).cache;
}

void set_cache(mlx_h2o_layer_cache* result, LayerCache cache) {
  result->ctx = new LayerHandle{std::move(cache), std::nullopt};
}

/// Runs `work` on a cache, and reports the cache's notices.
template <class Work>
int with_cache(const mlx_h2o_layer_cache& cache, Work work) {
  std::vector<CacheNotice> notices;
  const int status = guarded([&] {
    LayerCache& core = cache_of(cache);
    work(core);
    notices = core.take_notices();
  });
  if (!notices.empty()) {
    const NoticeHandler told = [] {
      std::scoped_lock lock(notice_mutex);
      return notice_handler;
    }();
    for (const auto& [code, path, error] : notices) {
      if (told.handler) {
        told.handler(code.c_str(), path.c_str(), error, told.data.get());
      }
    }
  }
  return status;
}

/// Returns the result of `get` for a cache, or an empty value after an error.
template <class Get>
auto number_of(const mlx_h2o_layer_cache& cache, Get get) {
  decltype(get(cache_of(cache))) number{};
  guarded([&] { number = get(cache_of(cache)); });
  return number;
}

mx::Dtype dtype_of(mlx_dtype dtype) {
  switch (dtype) {
    case MLX_FLOAT16:
      return mx::float16;
    case MLX_BFLOAT16:
      return mx::bfloat16;
    default:
      return mx::float32;
  }
}

mlx_dtype c_dtype_of(mx::Dtype dtype) {
  if (dtype == mx::float16) {
    return MLX_FLOAT16;
  }
  return dtype == mx::bfloat16 ? MLX_BFLOAT16 : MLX_FLOAT32;
}

const Completed& completed_of(const mlx_h2o_policy& policy) {
  const auto& completed = handle_of(policy).completed;
  if (!completed) {
    throw std::invalid_argument(
        "the policy is not complete; call mlx_h2o_policy_complete first");
  }
  return *completed;
}

std::optional<Recall> recall_of(const mlx_h2o_config& config) {
  const auto& recall = completed_of(config.policy).recall;
  return recall ? std::optional(h2o::recall_of(*recall)) : std::nullopt;
}

CacheConfig config_of(const mlx_h2o_config& config) {
  RowFormat format{config.key_bits,        config.value_bits,  config.group_size,
                   dtype_of(config.dtype), config.recent_bits, config.rotated};
  validate(format);
  return {policy_of(completed_of(config.policy).policy), format};
}

std::optional<mx::array> optional_array(mlx_array a) {
  return a.ctx ? std::make_optional(mlx_array_get_(a)) : std::nullopt;
}

Mask mask_of(const char* mode, mlx_array values) {
  return make_mask(mode ? mode : "", optional_array(values));
}

SavedCache saved_of(const mlx_h2o_saved_cache& saved) {
  SavedCache result{
      saved.offset,
      saved.length,
      saved.pending,
      config_of(saved.config),
      recall_of(saved.config),
      std::nullopt,
      mlx_vector_array_get_(saved.arrays)};
  if (const auto* archive = saved.archive) {
    result.archive = {
        archive->first,
        archive->since,
        {archive->bits, archive->bits, archive->group_size, dtype_of(archive->dtype)},
        std::nullopt};
    if (archive->session) {
      result.archive->mark = {archive->session, archive->count, text(archive->chain)};
    }
  }
  return result;
}

} // namespace h2o::c

using namespace h2o::c;

extern "C" int mlx_fast_scaled_dot_product_attention_with_scores(
    mlx_array* out,
    mlx_array* scores,
    const mlx_array queries,
    const mlx_array keys,
    const mlx_array values,
    float scale,
    const char* mask_mode,
    const mlx_array mask_arr,
    const mlx_array sinks,
    const mlx_stream s) {
  return guarded([&] {
    auto result = h2o::scaled_dot_product_attention_with_scores(
        mlx_array_get_(queries), mlx_array_get_(keys), mlx_array_get_(values), scale,
        mask_of(mask_mode, mask_arr), optional_array(sinks), mlx_stream_get_(s));
    mlx_array_set_(*out, result.first);
    mlx_array_set_(*scores, result.second);
  });
}

extern "C" int mlx_fast_scaled_dot_product_attention_quantized_with_scores(
    mlx_array* out,
    mlx_array* scores,
    const mlx_array queries,
    const mlx_array key_words,
    const mlx_array key_scales,
    const mlx_array key_biases,
    const mlx_array value_words,
    const mlx_array value_scales,
    const mlx_array value_biases,
    float scale,
    int key_bits,
    int value_bits,
    int group_size,
    const char* mask_mode,
    const mlx_array mask_arr,
    const mlx_array sinks,
    const mlx_stream s) {
  return guarded([&] {
    auto result = h2o::scaled_dot_product_attention_quantized_with_scores(
        mlx_array_get_(queries),
        {mlx_array_get_(key_words), mlx_array_get_(key_scales), mlx_array_get_(key_biases)},
        {mlx_array_get_(value_words), mlx_array_get_(value_scales),
         mlx_array_get_(value_biases)},
        scale, {key_bits, value_bits, group_size}, mask_of(mask_mode, mask_arr),
        optional_array(sinks), mlx_stream_get_(s));
    mlx_array_set_(*out, result.first);
    mlx_array_set_(*scores, result.second);
  });
}

extern "C" const char* mlx_h2o_error_code(void) {
  return last_error.code.c_str();
}

extern "C" size_t mlx_h2o_error_values(void) {
  return last_error.values.size();
}

extern "C" const char* mlx_h2o_error_name(size_t index) {
  return index < last_error.values.size() ? last_error.values[index].first.c_str()
                                          : nullptr;
}

extern "C" const char* mlx_h2o_error_value(size_t index) {
  return index < last_error.values.size() ? last_error.values[index].second.c_str()
                                          : nullptr;
}

extern "C" void mlx_h2o_set_notice_handler(
    mlx_h2o_notice_handler handler, void* data, void (*dtor)(void*)) {
  NoticeHandler next{handler, {data, [dtor](void* data) {
                                 if (dtor) {
                                   dtor(data);
                                 }
                               }}};
  std::scoped_lock lock(notice_mutex);
  std::swap(notice_handler, next);
}

extern "C" int mlx_h2o_layer_cache_new(
    mlx_h2o_layer_cache* res, const mlx_h2o_config config) {
  return guarded([&] {
    h2o::LayerCache cache(config_of(config), recall_of(config));
    cache.must_recall = false; // a model's attention cannot fail
    set_cache(res, std::move(cache));
  });
}

extern "C" int mlx_h2o_layer_cache_free(mlx_h2o_layer_cache cache) {
  delete static_cast<LayerHandle*>(cache.ctx);
  return 0;
}

extern "C" int mlx_h2o_layer_cache_copy(
    mlx_h2o_layer_cache* res, const mlx_h2o_layer_cache cache) {
  return with_cache(cache, [&](auto& core) { set_cache(res, core.copy()); });
}

extern "C" int mlx_h2o_layer_cache_write(
    mlx_array* keys,
    mlx_array* values,
    const mlx_h2o_layer_cache cache,
    const mlx_array new_keys,
    const mlx_array new_values,
    const mlx_stream s) {
  return with_cache(cache, [&](auto& core) {
    const auto& stream = mlx_stream_get_(s);
    core.write(mlx_array_get_(new_keys), mlx_array_get_(new_values), false, stream);
    core.share();
    const auto rows = core.fetch(stream);
    mlx_array_set_(*keys, rows.first);
    mlx_array_set_(*values, rows.second);
  });
}

extern "C" int mlx_h2o_layer_cache_attend(
    mlx_array* out,
    const mlx_h2o_layer_cache cache,
    const mlx_array queries,
    const mlx_array keys,
    const mlx_array values,
    float scale,
    const char* mask_mode,
    const mlx_array mask_arr,
    const mlx_array sinks,
    const mlx_stream s) {
  return with_cache(cache, [&](auto& core) {
    const auto mask = mask_of(mask_mode, mask_arr);
    const auto& asking = mlx_array_get_(queries);
    if (keys.ctx) {
      core.write(mlx_array_get_(keys), mlx_array_get_(values), false, mlx_stream_get_(s));
    }
    const auto attended =
        core.attend(asking, scale, mask, optional_array(sinks), mlx_stream_get_(s));
    mlx_array_set_(*out, attended.value());
  });
}

extern "C" int mlx_h2o_layer_cache_settle(
    const mlx_h2o_layer_cache cache, const mlx_stream s) {
  return with_cache(cache, [&](auto& core) { core.settle(mlx_stream_get_(s)); });
}

extern "C" int mlx_h2o_layer_cache_finish(
    const mlx_h2o_layer_cache cache, const mlx_stream s) {
  return with_cache(cache, [&](auto& core) { core.finish(mlx_stream_get_(s)); });
}

extern "C" int mlx_h2o_layer_cache_trim(
    int* res, const mlx_h2o_layer_cache cache, int n, const mlx_stream s) {
  return with_cache(cache, [&](auto& core) { *res = core.trim(n, mlx_stream_get_(s)); });
}

extern "C" int mlx_h2o_layer_cache_share(const mlx_h2o_layer_cache cache) {
  return with_cache(cache, [](auto& core) { core.share(); });
}

extern "C" int mlx_h2o_prompt_choice_new(mlx_h2o_prompt_choice* res) {
  return guarded(
      [&] { res->ctx = new std::shared_ptr<h2o::PromptChoice>(new h2o::PromptChoice()); });
}

extern "C" int mlx_h2o_prompt_choice_free(mlx_h2o_prompt_choice choice) {
  delete static_cast<std::shared_ptr<h2o::PromptChoice>*>(choice.ctx);
  return 0;
}

extern "C" int mlx_h2o_layer_cache_join(
    const mlx_h2o_layer_cache cache, const mlx_h2o_prompt_choice choice, int layer) {
  return with_cache(cache, [&](auto& core) {
    core.join(
        held_by<std::shared_ptr<h2o::PromptChoice>>(choice, "mlx_h2o_prompt_choice"),
        layer);
  });
}

extern "C" int mlx_h2o_layer_cache_move_archive(
    const mlx_h2o_layer_cache cache, const char* folder, const mlx_stream s) {
  return with_cache(
      cache, [&](auto& core) { core.move_archive(text(folder), mlx_stream_get_(s)); });
}

extern "C" int mlx_h2o_layer_cache_offset(const mlx_h2o_layer_cache cache) {
  return number_of(cache, [](auto& core) { return core.offset(); });
}

extern "C" int mlx_h2o_layer_cache_length(const mlx_h2o_layer_cache cache) {
  return number_of(cache, [](auto& core) { return core.length(); });
}

extern "C" int mlx_h2o_layer_cache_waiting(const mlx_h2o_layer_cache cache) {
  return number_of(cache, [](auto& core) { return core.waiting(); });
}

extern "C" bool mlx_h2o_layer_cache_is_trimmable(const mlx_h2o_layer_cache cache) {
  return number_of(cache, [](auto& core) { return core.is_trimmable(); });
}

extern "C" int mlx_h2o_layer_cache_numbers(
    mlx_h2o_layer_numbers* res, const mlx_h2o_layer_cache cache) {
  return with_cache(cache, [&](auto& core) {
    const auto* archive = core.archive();
    *res = {core.value_dim(),   c_dtype_of(core.config().format.dtype),
            core.row_bytes(),   core.ledger_bytes(),
            archive != nullptr, archive ? archive->nbytes() : 0,
            core.recalled(),    core.recall_seconds()};
  });
}

extern "C" int mlx_h2o_layer_cache_ledger(
    mlx_vector_array* res, const mlx_h2o_layer_cache cache) {
  return with_cache(cache, [&](auto& core) {
    std::vector<mlx::core::array> arrays;
    if (!core.is_empty()) {
      arrays = h2o::arrays_of(*core.ledger());
    }
    mlx_vector_array_set_(*res, std::move(arrays));
  });
}

extern "C" int mlx_h2o_layer_cache_rows(
    mlx_vector_array* res, const mlx_h2o_layer_cache cache) {
  return with_cache(cache, [&](auto& core) {
    std::vector<mlx::core::array> arrays;
    if (!core.is_empty()) {
      arrays = h2o::arrays_of(*core.rows());
    }
    mlx_vector_array_set_(*res, std::move(arrays));
  });
}

extern "C" int mlx_h2o_layer_cache_chosen(mlx_array* res, const mlx_h2o_layer_cache cache) {
  return with_cache(cache, [&](auto& core) {
    if (core.chosen()) {
      mlx_array_set_(*res, *core.chosen());
    }
  });
}

extern "C" int mlx_h2o_layer_cache_arrays(
    mlx_vector_array* res, const mlx_h2o_layer_cache cache, const mlx_stream s) {
  return with_cache(cache, [&](auto& core) {
    mlx_vector_array_set_(*res, core.arrays(mlx_stream_get_(s)));
  });
}

extern "C" int mlx_h2o_layer_cache_archive(
    mlx_h2o_saved_archive* res, bool* recalls, const mlx_h2o_layer_cache cache) {
  return guarded([&] {
    auto& [core, mark] = handle_of(cache);
    const auto* archive = core.archive();
    *recalls = archive != nullptr;
    if (!archive) {
      return;
    }
    mark = archive->files().mark();
    const auto& format = archive->format();
    *res = {archive->first(),         core.since(),
            format.key_bits,          format.group_size,
            c_dtype_of(format.dtype), mark ? mark->session.c_str() : nullptr,
            mark ? mark->count : 0,   mark ? mark->chain.c_str() : nullptr};
  });
}

extern "C" int mlx_h2o_layer_cache_restore(
    mlx_h2o_layer_cache* res, const mlx_h2o_saved_cache saved, const mlx_stream s) {
  return guarded([&] {
    auto cache = h2o::LayerCache::restored(saved_of(saved), mlx_stream_get_(s));
    cache.must_recall = false;
    set_cache(res, std::move(cache));
  });
}

extern "C" int mlx_h2o_delete_stale_archives(const char* root) {
  return guarded([&] { h2o::delete_stale_archives(text(root), {}); });
}
