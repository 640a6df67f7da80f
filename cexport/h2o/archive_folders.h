#pragma once

#include <string>
#include <vector>

#include "archive_error.h"

/// The folders of whole conversations: each holds one folder per layer, `layer-007`.
namespace h2o {

/// "FOLDER/layer-007"
std::string layer_folder(const std::string& folder, int layer);

/// Removes a conversation's archive: our files and, where nothing else is in them, the
/// folders. Nothing is removed while any layer is open (archive_locked). A folder that is not
/// there is no error. Throws ArchiveError.
void delete_archive(const std::string& folder);

/// Removes the conversations in `root` that are not open anywhere and whose names are not in
/// `keep`: those of sessions that ended without saying so. Gives their names. Throws
/// ArchiveError.
std::vector<std::string> delete_stale_archives(
    const std::string& root, const std::vector<std::string>& keep);

} // namespace h2o
