#include "layer_cache.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>

#include <mutex>

#include "conversions.h"
#include "policy_from.h"

namespace nb = nanobind;
namespace mx = mlx::core;
using namespace nb::literals;

namespace h2o::python {

namespace {

/// A cache with a lock of its own, because its work runs without Python's lock.
class SharedCache {
 public:
  explicit SharedCache(LayerCache cache) : cache_(std::move(cache)) {
  }

  /// Runs `work`, then reports the cache's notices to Python.
  template <class Work>
  auto with(Work&& work) {
    std::vector<CacheNotice> notices;
    auto result = [&] {
      nb::gil_scoped_release release;
      std::scoped_lock lock(mutex_);
      auto result = work(cache_);
      notices = cache_.take_notices();
      return result;
    }();
    for (const auto& notice : notices) {
      nb::module_::import_("h2o_py.errors")
          .attr("say_once")(
              notice.code, notice.path, notice.error,
              cache_.recall() ? cache_.recall()->limit : 0);
    }
    return result;
  }

  LayerCache& unlocked() { // only for reading numbers
    return cache_;
  }

 private:
  LayerCache cache_;
  std::mutex mutex_;
};

std::unique_ptr<SharedCache> shared(LayerCache cache) {
  return std::make_unique<SharedCache>(std::move(cache));
}

template <class Get>
auto number(Get get) {
  return [get](SharedCache& cache) {
    return get(cache.unlocked());
  };
}

/// Converts exceptions of the core to exceptions of h2o_py.
void translate(const std::exception_ptr& thrown, void*) {
  auto raise = [](const char* kind, const std::string& code, nb::dict values) {
    auto errors = nb::module_::import_("h2o_py.errors");
    auto error = errors.attr(kind)(code, **values);
    PyErr_SetObject(error.type().ptr(), error.ptr());
  };
  try {
    std::rethrow_exception(thrown);
  } catch (const CacheError& error) {
    nb::dict values;
    for (const auto& [name, value] : error.values) {
      values[name.c_str()] = value;
    }
    const bool is_setting = error.code == cache_codes::archive_group;
    raise(is_setting ? "H2OConfigError" : "H2OStateError", error.code, values);
  } catch (const ArchiveError& error) {
    auto values = nb::module_::import_("h2o_py.errors")
                      .attr("of_archive")(error.failure.path, error.failure.error);
    raise("H2OFileError", error.failure.code, nb::cast<nb::dict>(values));
  }
}

std::unique_ptr<SharedCache> restored(
    const h2o::CacheConfig& config,
    nb::handle recall,
    std::tuple<int64_t, int64_t, int64_t> counts,
    std::vector<mx::array> arrays,
    const std::optional<std::tuple<int64_t, int64_t, int, int, mx::Dtype>>& archive,
    const std::optional<MarkTuple>& mark) {
  const auto [offset, length, pending] = counts;
  SavedCache saved{offset, length,           pending, config, recall_from(recall),
                   {},     std::move(arrays)};
  if (archive) {
    const auto& [first, since, bits, group_size, dtype] = *archive;
    saved.archive = {first, since, {bits, bits, group_size, dtype}, std::nullopt};
    if (mark) {
      const auto& [session, count, chain] = *mark;
      saved.archive->mark = {session, count, chain};
    }
  }
  nb::gil_scoped_release release;
  return shared(LayerCache::restored(std::move(saved)));
}

} // namespace

void bind_layer_cache(nb::module_& m) {
  nb::register_exception_translator(translate);

  auto archive = nb::class_<h2o::Archive>(m, "Archive");
  archive
      .def_prop_ro(
          "mark",
          [](const h2o::Archive& archive) { return optional_mark(archive.files().mark()); })
      .def_prop_ro(
          "bits", [](const h2o::Archive& archive) { return archive.recall().archive_bits; })
      .def_prop_ro("length", &h2o::Archive::length)
      .def_prop_ro("first", &h2o::Archive::first)
      .def_prop_ro("nbytes", &h2o::Archive::nbytes)
      .def_prop_ro(
          "dtype", [](const h2o::Archive& archive) { return archive.format().dtype; })
      .def_prop_ro("group_size", [](const h2o::Archive& archive) {
        return archive.format().group_size;
      });
#ifdef H2O_TESTS
  bind_for_tests(m, archive);
#endif

  nb::class_<h2o::PromptChoice>(m, "PromptChoice").def(nb::init<>());

  auto cache = nb::class_<SharedCache>(m, "LayerCache");
  cache
      .def(
          "__init__",
          [](SharedCache* self, const h2o::CacheConfig& config, nb::handle recall,
             bool in_operations) {
            new (self)
                SharedCache(h2o::LayerCache(config, recall_from(recall), in_operations));
          },
          "config"_a, "recall"_a.none() = nb::none(), nb::kw_only(),
          "in_operations"_a = false)
      .def_static(
          "restored", &restored, "config"_a, "recall"_a.none(), nb::kw_only(), "counts"_a,
          "arrays"_a, "archive"_a.none() = nb::none(), "mark"_a.none() = nb::none())
      .def(
          "write",
          [](SharedCache& cache, const mx::array& keys, const mx::array& values,
             bool copy) {
            return cache.with([&](auto& core) {
              core.write(keys, values, copy);
              return core.fetch();
            });
          },
          "keys"_a, "values"_a, "copy"_a = false)
      .def(
          "attend",
          [](SharedCache& cache, const mx::array& queries, float scale,
             const MaskArgument& mask, const std::optional<mx::array>& sinks) {
            return cache.with([&](auto& core) {
              return core.attend(queries, scale, mask_of(mask), sinks).value();
            });
          },
          "queries"_a, nb::kw_only(), "scale"_a, "mask"_a = nb::none(),
          "sinks"_a = nb::none())
      .def(
          "settle",
          [](SharedCache& cache) {
            cache.with([](auto& core) { return core.settle(), 0; });
          })
      .def(
          "trim",
          [](SharedCache& cache, int n) {
            return cache.with([&](auto& core) { return core.trim(n); });
          },
          "n"_a)
      .def(
          "finish",
          [](SharedCache& cache) {
            cache.with([](auto& core) { return core.finish(), 0; });
          })
      .def("share", [](SharedCache& cache) { cache.unlocked().share(); })
      .def(
          "copy",
          [](SharedCache& cache) {
            return cache.with([](auto& core) { return shared(core.copy()); });
          })
      .def(
          "join",
          [](SharedCache& cache, std::shared_ptr<h2o::PromptChoice> choice, int layer) {
            cache.unlocked().join(std::move(choice), layer);
          },
          "choice"_a, "layer"_a)
      .def(
          "arrays",
          [](SharedCache& cache) {
            return cache.with([](auto& core) { return core.arrays(); });
          })
      .def(
          "views",
          [](SharedCache& cache) {
            return cache.with([](auto& core) { return core.views(); });
          })
      .def_prop_rw(
          "ledger",
          [](SharedCache& cache) -> std::optional<LedgerTuple> {
            const auto& ledger = cache.unlocked().ledger();
            return ledger ? std::optional(to_tuple(*ledger)) : std::nullopt;
          },
          [](SharedCache& cache, const LedgerTuple& ledger) {
            cache.unlocked().set_ledger(to_ledger(ledger));
          },
          nb::rv_policy::move)
      .def_prop_ro(
          "rows",
          [](SharedCache& cache) -> std::optional<RowsTuple> {
            const auto& rows = cache.unlocked().rows();
            return rows ? std::optional(to_tuple(*rows)) : std::nullopt;
          },
          nb::rv_policy::move)
      .def_prop_ro(
          "archive", [](SharedCache& cache) { return cache.unlocked().archive(); },
          nb::rv_policy::reference_internal)
      .def_prop_ro(
          "chosen", [](SharedCache& cache) { return cache.unlocked().chosen(); },
          nb::rv_policy::move)
      .def_prop_rw(
          "expects_queries",
          [](SharedCache& cache) { return cache.unlocked().expects_queries; },
          [](SharedCache& cache, bool value) { cache.unlocked().expects_queries = value; })
      .def_prop_ro("offset", number([](auto& core) { return core.offset(); }))
      .def_prop_ro("length", number([](auto& core) { return core.length(); }))
      .def_prop_ro("waiting", number([](auto& core) { return core.waiting(); }))
      .def_prop_ro("since", number([](auto& core) { return core.since(); }))
      .def_prop_ro("recalled", number([](auto& core) { return core.recalled(); }))
      .def_prop_ro("nbytes", number([](auto& core) { return core.nbytes(); }))
      .def_prop_ro("is_empty", number([](auto& core) { return core.is_empty(); }))
      .def_prop_ro("is_trimmable", number([](auto& core) { return core.is_trimmable(); }))
      .def_prop_ro("dtype", number([](auto& core) { return core.config().format.dtype; }));
}

} // namespace h2o::python
