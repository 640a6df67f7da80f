#include "mlx/c/h2o.h"

#include <mutex>

#include "layer_cache.h"
#include "mlx/c/error.h"
#include "mlx/c/private/mlx.h"

namespace h2o::c {

namespace mx = mlx::core;

/// The code and the values of the last error on this thread.
struct LastError {
  std::string code;
  std::vector<std::pair<std::string, std::string>> values;
};

thread_local LastError last_error;

std::string value_text(const std::variant<int64_t, std::string>& value) {
  const auto* number = std::get_if<int64_t>(&value);
  return number ? std::to_string(*number) : std::get<std::string>(value);
}

void set_last_error(const Problem& problem) {
  last_error = {problem.code, {}};
  for (const auto& [name, value] : problem.values) {
    last_error.values.emplace_back(name, value_text(value));
  }
}

/// Runs `body` and returns 0. If `body` throws, passes the exception's message to the mlx
/// error handler (as an argument, never as the format) and returns 1.
template <class Body>
int guarded(Body body) {
  last_error = {};
  try {
    body();
    return 0;
  } catch (const Refusal& error) {
    set_last_error(error.problem);
    mlx_error("%s", error.what());
  } catch (const std::exception& error) {
    mlx_error("%s", error.what());
  }
  return 1;
}

/// Returns the result of `get`, or an empty value if it throws.
template <class Get>
auto result_of(Get get) {
  decltype(get()) result{};
  guarded([&] { result = get(); });
  return result;
}

/// The object of a handle. Throws std::invalid_argument if the handle is empty.
template <class Held, class Handle>
Held& held_by(const Handle& handle, const char* name) {
  if (!handle.ctx) {
    throw std::invalid_argument(std::string("an argument of type ") + name + " is empty");
  }
  return *static_cast<Held*>(handle.ctx);
}

const char* text(const char* value) {
  return value ? value : "";
}

struct PolicyHandle {
  Values policy;
  std::optional<Values> recall;
  std::optional<Completed> completed;
};

PolicyHandle& handle_of(const mlx_h2o_policy& policy) {
  return held_by<PolicyHandle>(policy, "mlx_h2o_policy");
}

constexpr std::string_view of_recall = "recall.";

/// Returns whether a name is the name of a setting of recall, and the name without "recall.".
std::pair<bool, std::string> split(const char* name) {
  const std::string_view whole = text(name);
  const bool recalls = whole.substr(0, of_recall.size()) == of_recall;
  return {recalls, std::string(recalls ? whole.substr(of_recall.size()) : whole)};
}

int set(mlx_h2o_policy policy, const char* name, Value value) {
  return guarded([&] {
    auto& handle = handle_of(policy);
    const auto [recalls, key] = split(name);
    if (recalls && !handle.recall) {
      handle.recall.emplace();
    }
    (recalls ? *handle.recall : handle.policy)[key] = std::move(value);
  });
}

/// A setting of a complete policy; null if there is no such setting, or after an error.
const Value* setting(mlx_h2o_policy policy, const char* name) {
  return result_of([&]() -> const Value* {
    const auto& completed = handle_of(policy).completed;
    const auto [recalls, key] = split(name);
    if (!completed || (recalls && !completed->recall)) {
      return nullptr;
    }
    const Values& values = recalls ? *completed->recall : completed->policy;
    const auto entry = values.find(key);
    return entry == values.end() ? nullptr : &entry->second;
  });
}

/// Converts a list of bounds to ranges if the setting holds ranges.
Value integers(const std::string& name, const int64_t* values, size_t count) {
  for (const auto& field : policy_fields) {
    if (name == field.name && field.kind == Kind::ranges && count % 2 == 0) {
      Ranges ranges;
      for (size_t i = 0; i < count; i += 2) {
        ranges.emplace_back(values[i], values[i + 1]);
      }
      return ranges;
    }
  }
  return std::vector<int64_t>(values, values + count);
}

Completed complete(const PolicyHandle& handle) {
  if (handle.policy.empty() && handle.recall) {
    Completed completed;
    completed.recall = complete_recall(*handle.recall);
    return completed;
  }
  return h2o::complete(handle.policy, handle.recall);
}

/// The callback that receives notices of caches.
struct NoticeHandler {
  mlx_h2o_notice_handler handler = nullptr;
  std::shared_ptr<void> data;
};

std::mutex notice_mutex;
NoticeHandler notice_handler;

/// A cache, and the header that its last call returned.
struct LayerHandle {
  LayerCache cache;
  std::string header;
};

LayerHandle& handle_of(const mlx_h2o_layer_cache& cache) {
  return held_by<LayerHandle>(cache, "mlx_h2o_layer_cache");
}

LayerCache& cache_of(const mlx_h2o_layer_cache& cache) {
  return handle_of(cache).cache;
}

void set_cache(mlx_h2o_layer_cache* result, LayerCache cache) {
  result->ctx = new LayerHandle{std::move(cache), {}};
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

/// The arrays of a cache's ledger or rows; none if the cache is empty or has no ledger.
template <class Held>
std::vector<mx::array> arrays_of(const LayerCache& cache, const std::optional<Held>& held) {
  return cache.is_empty() || !held ? std::vector<mx::array>() : h2o::arrays_of(*held);
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
  RowFormat format{
      .key_bits = config.key_bits,
      .value_bits = config.value_bits,
      .group_size = config.group_size,
      .recent_bits = config.recent_bits,
      .rotated = config.rotated};
  validate(format);
  return {policy_of(completed_of(config.policy).policy), format};
}

std::optional<mx::array> optional_array(mlx_array a) {
  return a.ctx ? std::make_optional(mlx_array_get_(a)) : std::nullopt;
}

Mask mask_of(const char* mode, mlx_array values) {
  return make_mask(mode ? mode : "", optional_array(values));
}

} // namespace h2o::c

using namespace h2o::c;

extern "C" int mlx_h2o_policy_new(mlx_h2o_policy* res) {
  return guarded([&] { res->ctx = new PolicyHandle(); });
}

extern "C" int mlx_h2o_policy_free(mlx_h2o_policy policy) {
  delete static_cast<PolicyHandle*>(policy.ctx);
  return 0;
}

extern "C" int mlx_h2o_policy_set_integer(
    mlx_h2o_policy policy, const char* name, int64_t value) {
  return set(policy, name, value);
}

extern "C" int mlx_h2o_policy_set_text(
    mlx_h2o_policy policy, const char* name, const char* value) {
  return set(policy, name, std::string(text(value)));
}

extern "C" int mlx_h2o_policy_set_integers(
    mlx_h2o_policy policy, const char* name, const int64_t* values, size_t count) {
  return set(policy, name, integers(text(name), values, values ? count : 0));
}

extern "C" int mlx_h2o_policy_complete(mlx_h2o_policy policy) {
  return guarded([&] {
    auto& handle = handle_of(policy);
    handle.completed.reset();
    handle.completed = complete(handle);
  });
}

extern "C" int64_t mlx_h2o_policy_integer(mlx_h2o_policy policy, const char* name) {
  const auto* value = setting(policy, name);
  const auto* integer = value ? std::get_if<int64_t>(value) : nullptr;
  return integer ? *integer : 0;
}

extern "C" const char* mlx_h2o_policy_text(mlx_h2o_policy policy, const char* name) {
  const auto* value = setting(policy, name);
  const auto* text = value ? std::get_if<std::string>(value) : nullptr;
  return text ? text->c_str() : "";
}

extern "C" size_t mlx_h2o_policy_integers(
    int64_t* res, size_t most, mlx_h2o_policy policy, const char* name) {
  std::vector<int64_t> numbers;
  if (const auto* value = setting(policy, name)) {
    if (const auto* list = std::get_if<std::vector<int64_t>>(value)) {
      numbers = *list;
    } else if (const auto* ranges = std::get_if<h2o::Ranges>(value)) {
      for (auto [begin, end] : *ranges) {
        numbers.insert(numbers.end(), {begin, end});
      }
    }
  }
  std::copy_n(numbers.begin(), std::min(most, numbers.size()), res);
  return numbers.size();
}

extern "C" bool mlx_h2o_policy_warning(mlx_h2o_policy policy, size_t index) {
  return result_of([&] {
    const auto& completed = handle_of(policy).completed;
    if (!completed || index >= completed->warnings.size()) {
      return false;
    }
    set_last_error(completed->warnings[index]);
    return true;
  });
}

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
    core.write(mlx_array_get_(new_keys), mlx_array_get_(new_values), stream);
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
      core.write(mlx_array_get_(keys), mlx_array_get_(values), mlx_stream_get_(s));
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

extern "C" int mlx_h2o_layer_cache_trim(
    int* res, const mlx_h2o_layer_cache cache, int n, const mlx_stream s) {
  return with_cache(cache, [&](auto& core) { *res = core.trim(n, mlx_stream_get_(s)); });
}

extern "C" int mlx_h2o_layer_cache_share(const mlx_h2o_layer_cache cache) {
  return with_cache(cache, [](auto& core) { core.share(); });
}

extern "C" int mlx_h2o_layer_cache_move_archive(
    const mlx_h2o_layer_cache cache, const char* folder, const mlx_stream s) {
  return with_cache(
      cache, [&](auto& core) { core.move_archive(text(folder), mlx_stream_get_(s)); });
}

extern "C" int mlx_h2o_layer_cache_offset(const mlx_h2o_layer_cache cache) {
  return result_of([&] { return cache_of(cache).offset(); });
}

extern "C" int mlx_h2o_layer_cache_length(const mlx_h2o_layer_cache cache) {
  return result_of([&] { return cache_of(cache).length(); });
}

extern "C" int mlx_h2o_layer_cache_unattended(const mlx_h2o_layer_cache cache) {
  return result_of([&] { return cache_of(cache).unattended(); });
}

extern "C" bool mlx_h2o_layer_cache_is_trimmable(const mlx_h2o_layer_cache cache) {
  return result_of([&] { return cache_of(cache).is_trimmable(); });
}

extern "C" int mlx_h2o_layer_cache_numbers(
    mlx_h2o_layer_numbers* res, const mlx_h2o_layer_cache cache) {
  return with_cache(cache, [&](auto& core) {
    const auto* archive = core.archive();
    *res = {
        core.row_bytes(),
        core.ledger_bytes(),
        archive != nullptr,
        archive && archive->files().mark(),
        archive ? archive->nbytes() : 0,
        archive ? archive->sketch_bytes() : 0,
        core.archive_reads()};
  });
}

extern "C" int mlx_h2o_layer_cache_ledger(
    mlx_vector_array* res, const mlx_h2o_layer_cache cache) {
  return with_cache(cache, [&](auto& core) {
    mlx_vector_array_set_(*res, arrays_of(core, core.ledger()));
  });
}

extern "C" int mlx_h2o_layer_cache_rows(
    mlx_vector_array* res, const mlx_h2o_layer_cache cache) {
  return with_cache(cache, [&](auto& core) {
    mlx_vector_array_set_(*res, arrays_of(core, core.rows()));
  });
}

extern "C" int mlx_h2o_layer_cache_arrays(
    mlx_vector_array* res, const mlx_h2o_layer_cache cache, const mlx_stream s) {
  return with_cache(cache, [&](auto& core) {
    mlx_vector_array_set_(*res, core.arrays(mlx_stream_get_(s)));
  });
}

extern "C" const char* mlx_h2o_layer_cache_header(const mlx_h2o_layer_cache cache) {
  const int status =
      with_cache(cache, [&](auto& core) { handle_of(cache).header = core.header(); });
  return status == 0 ? handle_of(cache).header.c_str() : nullptr;
}

extern "C" int mlx_h2o_layer_cache_restore(
    mlx_h2o_layer_cache* res,
    const char* header,
    const mlx_vector_array arrays,
    const char* folder,
    const mlx_stream s) {
  return guarded([&] {
    const auto own = folder ? std::optional<std::string>(folder) : std::nullopt;
    auto saved = h2o::saved_cache(text(header), "", own);
    saved.arrays = mlx_vector_array_get_(arrays);
    auto cache = h2o::LayerCache::restored(std::move(saved), mlx_stream_get_(s));
    cache.must_recall = false;
    set_cache(res, std::move(cache));
  });
}

extern "C" int mlx_h2o_layer_cache_config(
    mlx_h2o_config* res, const mlx_h2o_layer_cache cache) {
  return with_cache(cache, [&](auto& core) {
    const auto& config = core.config();
    const auto& format = config.format;
    auto policy = std::make_unique<PolicyHandle>();
    policy->completed = h2o::complete(
        h2o::values_of(static_cast<const h2o::Policy&>(config)),
        core.recall() ? std::optional(h2o::values_of(*core.recall())) : std::nullopt);
    *res = {{policy.release()}, format.key_bits,    format.value_bits,
            format.group_size,  format.recent_bits, format.rotated};
  });
}
