#pragma once

#include <optional>
#include <stdexcept>

#include "layer_cache.h"
#include "mlx/c/error.h"
#include "mlx/c/h2o.h"
#include "policy_rules.h"

/// The objects behind the handles of the C interface, and the error handling of its
/// functions.
namespace h2o::c {

/// The code and the values of the last error on this thread.
struct LastError {
  std::string code;
  std::vector<std::pair<std::string, std::string>> values;
};

extern thread_local LastError last_error;

/// Runs `body` and returns 0. If `body` throws, passes the exception's message to the mlx
/// error handler (as an argument, never as the format) and returns 1.
template <class Body>
int guarded(Body body) {
  last_error = {};
  try {
    body();
    return 0;
  } catch (const CacheError& error) {
    last_error = {error.code, {error.values.begin(), error.values.end()}};
    mlx_error("%s", error.what());
  } catch (const ArchiveError& error) {
    const auto& [code, path, number] = error.failure;
    last_error = {code, {{"path", path}, {"error", std::to_string(number)}}};
    mlx_error("%s", error.what());
  } catch (const std::exception& error) {
    mlx_error("%s", error.what());
  }
  return 1;
}

/// The object of a handle. Throws std::invalid_argument if the handle is empty.
template <class Held, class Handle>
Held& held_by(const Handle& handle, const char* name) {
  if (!handle.ctx) {
    throw std::invalid_argument(std::string("an argument of type ") + name + " is empty");
  }
  return *static_cast<Held*>(handle.ctx);
}

inline const char* text(const char* value) {
  return value ? value : "";
}

struct PolicyHandle {
  Values policy;
  std::optional<Values> recall;
  std::optional<Completed> completed;
  std::vector<Problem> problems;
};

inline PolicyHandle& handle_of(const mlx_h2o_policy& policy) {
  return held_by<PolicyHandle>(policy, "mlx_h2o_policy");
}

} // namespace h2o::c
