#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>

#include "conversions.h"
#include "policy_from.h"
#include "shared_cache.h"

namespace nb = nanobind;
namespace mx = mlx::core;
using namespace nb::literals;

namespace h2o::python {

namespace {

std::unique_ptr<SharedCache> shared(LayerCache cache) {
  return std::make_unique<SharedCache>(std::move(cache));
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
    const auto& [code, values] = error.problem;
    const bool is_setting = code == cache_codes::archive_group;
    raise(
        is_setting ? "H2OConfigError" : "H2OStateError", code,
        nb::cast<nb::dict>(nb::cast(values)));
  } catch (const ArchiveError& error) {
    auto values = nb::module_::import_("h2o_py.errors")
                      .attr("of_archive")(error.failure.path, error.failure.error);
    raise("H2OFileError", error.failure.code, nb::cast<nb::dict>(values));
  } catch (const PolicyError& error) {
    // The exception of h2o_py._policy, which h2o_py.config turns into an H2OConfigError.
    nb::object kind = nb::module_::import_("h2o_py._policy").attr("PolicyError");
    PyErr_SetObject(
        kind.ptr(), nb::make_tuple(error.problem.code, error.problem.values).ptr());
  }
}

/// The settings of a saved cache, as H2OConfig.from_dict reads them.
nb::dict settings_of(const SavedCache& saved) {
  nb::dict settings = dict_of(values_of(static_cast<const Policy&>(saved.config)));
  if (saved.recall) {
    settings["recall"] = dict_of(values_of(*saved.recall));
  }
  return settings;
}

} // namespace

void bind_layer_cache(nb::module_& m) {
  nb::register_exception_translator(translate);

  auto archive = nb::class_<ArchiveOf>(m, "Archive");
  auto of_archive = [&](const char* name, auto work) {
    archive.def_prop_ro(name, locked<ArchiveOf>(work));
  };
  of_archive("length", [](Archive& core) { return core.length(); });
  of_archive("first", [](Archive& core) { return core.first(); });
  of_archive("nbytes", [](Archive& core) { return core.nbytes(); });
  of_archive("sketch_bytes", [](Archive& core) { return core.sketch_bytes(); });
#ifdef H2O_TESTS
  bind_for_tests(m, archive);
#endif

  auto saved = nb::class_<SavedCache>(m, "SavedCache");
  saved.def(
      "__init__",
      [](SavedCache* self, const std::string& header, const std::string& known,
         const std::optional<std::string>& store) {
        new (self) SavedCache(saved_cache(header, known, store));
      },
      "header"_a, "known"_a, "store"_a.none());
  saved.def_ro("offset", &SavedCache::offset);
  saved.def_prop_ro("settings", &settings_of);
  saved.def_prop_ro("row_format", [](const SavedCache& saved) {
    const RowFormat& format = saved.config.format;
    return std::tuple{
        format.key_bits,
        format.value_bits,
        format.group_size,
        format.dtype,
        format.recent_bits > 0 ? std::optional(format.recent_bits) : std::nullopt,
        format.rotated};
  });
  saved.def_prop_ro("archive", [](const SavedCache& saved) {
    const auto& archive = saved.archive;
    return archive ? std::optional(std::tuple{archive->first, archive->format.dtype})
                   : std::nullopt;
  });

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
          "restored",
          [](SavedCache saved, std::vector<mx::array> arrays) {
            saved.arrays = std::move(arrays);
            nb::gil_scoped_release release;
            return shared(LayerCache::restored(std::move(saved)));
          },
          "saved"_a, "arrays"_a)
      .def("header", locked<SharedCache>([](auto& core) { return core.header(); }))
      .def(
          "write",
          [](SharedCache& cache, const mx::array& keys, const mx::array& values) {
            return cache.with([&](auto& core) {
              core.write(keys, values);
              return core.fetch();
            });
          },
          "keys"_a, "values"_a)
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
      .def("settle", locked<SharedCache>([](auto& core) { return core.settle(), 0; }))
      .def(
          "trim",
          [](SharedCache& cache, int n) {
            return cache.with([&](auto& core) { return core.trim(n); });
          },
          "n"_a)
      .def("share", locked<SharedCache>([](auto& core) { return core.share(), 0; }))
      .def("copy", locked<SharedCache>([](auto& core) { return shared(core.copy()); }))
      .def("arrays", locked<SharedCache>([](auto& core) { return core.arrays(); }))
      .def("views", locked<SharedCache>([](auto& core) { return core.views(); }))
      .def_prop_rw(
          "ledger", locked<SharedCache>([](auto& core) {
            const auto& ledger = core.ledger();
            return ledger ? std::optional<LedgerTuple>(to_tuple(*ledger)) : std::nullopt;
          }),
          [](SharedCache& cache, const LedgerTuple& ledger) {
            cache.with([&](auto& core) { return core.set_ledger(to_ledger(ledger)), 0; });
          },
          nb::rv_policy::move)
      .def_prop_rw(
          "expects_queries",
          locked<SharedCache>([](auto& core) { return core.expects_queries; }),
          [](SharedCache& cache, bool value) {
            cache.with([&](auto& core) { return core.expects_queries = value; });
          })
      .def_prop_ro("archive", [](std::shared_ptr<SharedCache> cache) {
        const bool is_there =
            cache->with([](auto& core) { return core.archive() != nullptr; });
        return is_there ? std::optional(ArchiveOf{std::move(cache)}) : std::nullopt;
      });
  auto of_cache = [&](const char* name, auto work) {
    cache.def_prop_ro(name, locked<SharedCache>(work), nb::rv_policy::move);
  };
  of_cache("rows", [](auto& core) {
    const auto& rows = core.rows();
    return rows ? std::optional(arrays_of(*rows)) : std::nullopt;
  });
  of_cache("offset", [](auto& core) { return core.offset(); });
  of_cache("length", [](auto& core) { return core.length(); });
  of_cache("unattended", [](auto& core) { return core.unattended(); });
  of_cache("archive_reads", [](auto& core) { return core.archive_reads(); });
  of_cache("nbytes", [](auto& core) { return core.nbytes(); });
  of_cache("is_empty", [](auto& core) { return core.is_empty(); });
  of_cache("is_trimmable", [](auto& core) { return core.is_trimmable(); });
  of_cache("dtype", [](auto& core) { return core.config().format.dtype; });
}

} // namespace h2o::python
