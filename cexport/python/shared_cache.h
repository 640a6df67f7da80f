#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>

#include "layer_cache.h"

namespace h2o::python {

/// A cache with a lock of its own, because its work runs without Python's lock.
class SharedCache {
 public:
  explicit SharedCache(LayerCache cache) : cache_(std::move(cache)) {
  }

  /// Runs `work` on the cache without Python's lock, while no other thread uses the cache.
  /// Then reports the cache's notices to Python.
  template <class Work>
  auto with(Work&& work) {
    std::vector<CacheNotice> notices;
    auto result = [&] {
      nanobind::gil_scoped_release release;
      std::scoped_lock lock(mutex_);
      auto result = work(cache_);
      notices = cache_.take_notices();
      return result;
    }();
    for (const auto& notice : notices) {
      nanobind::module_::import_("h2o_py.errors")
          .attr("say_once")(notice.code, notice.path, notice.error);
    }
    return result;
  }

 private:
  LayerCache cache_;
  std::mutex mutex_;
};

/// A cache's archive as Python holds it: it keeps the cache alive, and uses the cache's lock.
struct ArchiveOf {
  std::shared_ptr<SharedCache> cache;

  /// Runs `work` on the archive; throws CacheError if the cache has none any more.
  template <class Work>
  auto with(Work&& work) const {
    return cache->with([&](LayerCache& core) {
      if (core.archive() == nullptr) {
        throw CacheError({cache_codes::archive_ended, {}});
      }
      return work(*core.archive());
    });
  }
};

/// Makes a function of Python from one of the core, which gets the cache or its archive.
template <class Handle, class Work>
auto locked(Work work) {
  return [work](Handle& handle) {
    return handle.with(work);
  };
}

} // namespace h2o::python
