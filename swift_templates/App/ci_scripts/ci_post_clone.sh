#!/bin/sh
# written once by h2o-pack, yours to change
#
# Xcode Cloud runs this after it has cloned the repository: it fetches the weights from Git LFS, and
# makes the folder Vendor unless you have committed it. For that, the workflow in Xcode Cloud needs the
# environment variable H2O_PACK, from which pip installs h2o-pack: git+https://ADDRESS@COMMIT.
set -eu
cd "$(dirname "$0")/../.."
brew install git-lfs
git lfs install
git lfs pull
if [ ! -d Vendor ]; then
  brew install python@3.12
  python3.12 -m venv "$HOME/h2o-pack"
  "$HOME/h2o-pack/bin/pip" install "${H2O_PACK:?names the source of h2o-pack, see the comment above}"
  "$HOME/h2o-pack/bin/h2o-pack" vendor .
fi
xcrun metal --version || xcodebuild -downloadComponent MetalToolchain
