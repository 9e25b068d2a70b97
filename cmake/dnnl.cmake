# Defines linnet::dnnl, where oneDNN is found. Debian's dnnl-config.cmake asks for OpenCL, which the library's users do not need, so that oneDNN is
# found by hand, here and by those who link the static library (cmake/linnet-config.cmake.in).
find_path(DNNL_INCLUDE_DIR dnnl.hpp)
find_library(DNNL_LIBRARY dnnl)
mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY)
if(DNNL_INCLUDE_DIR AND DNNL_LIBRARY AND NOT TARGET linnet::dnnl)
  add_library(linnet::dnnl INTERFACE IMPORTED GLOBAL)
  target_include_directories(linnet::dnnl SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
  target_link_libraries(linnet::dnnl INTERFACE ${DNNL_LIBRARY})
endif()
