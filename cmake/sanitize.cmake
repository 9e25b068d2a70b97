# LINNET_SANITIZE: the sanitizers that everything is built with, as -fsanitize takes them (docs/testing.md).
set(LINNET_SANITIZE "" CACHE STRING "Build with sanitizers: address,undefined or thread; empty for none")
if(LINNET_SANITIZE)
  set(linnet_sanitize -fsanitize=${LINNET_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_options(${linnet_sanitize})
  add_link_options(${linnet_sanitize})
  # g++ 12 takes moved members of std::regex for uninitialised under the address sanitizer (its bug 105616).
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  # Fuzz targets compile in two thirds of the time without these three. A null pointer ends in a signal all the same, the
  # address sanitizer knows the sizes of objects, and the preset asan has all three.
  if(LINNET_BUILD_FUZZERS)
    add_compile_options(-fno-sanitize=null,object-size,vptr)
  endif()
endif()
