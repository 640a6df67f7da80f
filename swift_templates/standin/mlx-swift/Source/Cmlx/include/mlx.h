/* A stand-in for the umbrella header of Cmlx in mlx-swift 0.31.6. */
#include "mlx/c/array.h"
#include "mlx/c/error.h"
#include "mlx/c/h2o.h"
#include "mlx/c/ops.h"
#include "mlx/c/stream.h"
#include "mlx/c/vector.h"
