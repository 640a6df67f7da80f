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

  auto archive = nb::class_<ArchiveOf>(m, "Archive");
  auto of_archive = [&](const char* name, auto work) {
    archive.def_prop_ro(name, locked<ArchiveOf>(work));
  };
  of_archive("mark", [](Archive& core) { return optional_mark(core.files().mark()); });
  of_archive("bits", [](Archive& core) { return core.recall().archive_bits; });
  of_archive("length", [](Archive& core) { return core.length(); });
  of_archive("first", [](Archive& core) { return core.first(); });
  of_archive("nbytes", [](Archive& core) { return core.nbytes(); });
  of_archive("dtype", [](Archive& core) { return core.format().dtype; });
  of_archive("group_size", [](Archive& core) { return core.format().group_size; });
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
      .def("settle", locked<SharedCache>([](auto& core) { return core.settle(), 0; }))
      .def(
          "trim",
          [](SharedCache& cache, int n) {
            return cache.with([&](auto& core) { return core.trim(n); });
          },
          "n"_a)
      .def("finish", locked<SharedCache>([](auto& core) { return core.finish(), 0; }))
      .def("share", locked<SharedCache>([](auto& core) { return core.share(), 0; }))
      .def("copy", locked<SharedCache>([](auto& core) { return shared(core.copy()); }))
      .def(
          "join",
          [](SharedCache& cache, std::shared_ptr<h2o::PromptChoice> choice, int layer) {
            cache.with([&](auto& core) { return core.join(std::move(choice), layer), 0; });
          },
          "choice"_a, "layer"_a)
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
    return rows ? std::optional<RowsTuple>(to_tuple(*rows)) : std::nullopt;
  });
  of_cache("chosen", [](auto& core) { return std::optional<mx::array>(core.chosen()); });
  of_cache("offset", [](auto& core) { return core.offset(); });
  of_cache("length", [](auto& core) { return core.length(); });
  of_cache("waiting", [](auto& core) { return core.waiting(); });
  of_cache("since", [](auto& core) { return core.since(); });
  of_cache("recalled", [](auto& core) { return core.recalled(); });
  of_cache("nbytes", [](auto& core) { return core.nbytes(); });
  of_cache("is_empty", [](auto& core) { return core.is_empty(); });
  of_cache("is_trimmable", [](auto& core) { return core.is_trimmable(); });
  of_cache("dtype", [](auto& core) { return core.config().format.dtype; });
}

} // namespace h2o::python
