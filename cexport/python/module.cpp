#include "conversions.h"

NB_MODULE(_ext, m) {
  h2o::python::bind(m);
}
