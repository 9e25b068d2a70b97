# LINNET_SANITIZE: the sanitizers that everything is built with, as -fsanitize takes them (docs/testing.md).
set(LINNET_SANITIZE "" CACHE STRING "Build with sanitizers: address,undefined or thread; empty for none")
set(LINNET_SANITIZE_EXCEPT "" CACHE STRING "Checks of these sanitizers to leave out, as -fno-sanitize takes them")
if(LINNET_SANITIZE)
  set(linnet_sanitize -fsanitize=${LINNET_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_options(${linnet_sanitize})
  add_link_options(${linnet_sanitize})
  # g++ 12 takes moved members of std::regex for uninitialised under the address sanitizer (its bug 105616).
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  # The presets fuzz and asan-selection leave out null, object-size and vptr, and compile in two thirds of the time. A null
  # pointer ends in a signal all the same, the address sanitizer knows the sizes of objects, and the preset asan has all three.
  if(LINNET_SANITIZE_EXCEPT)
    add_compile_options(-fno-sanitize=${LINNET_SANITIZE_EXCEPT})
  endif()
endif()
