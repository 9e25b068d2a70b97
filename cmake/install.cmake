# What cmake --install puts where: headers, libraries, the package for find_package and the file for pkg-config. The program
# and its files are installed in apps/linnet. Packages that are made of parts take these with --component: linnet_program,
# linnet_runtime (the shared library) and linnet_development.
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/linnet)

install(DIRECTORY include/linnet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT linnet_development)
foreach(component linnet_program linnet_runtime linnet_development)
  install(FILES LICENSE THIRD-PARTY.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT ${component})
endforeach()
foreach(kind IN LISTS LINNET_KINDS)
  install(TARGETS linnet_${kind} EXPORT linnet-${kind}-targets
    RUNTIME COMPONENT linnet_runtime
    LIBRARY COMPONENT linnet_runtime NAMELINK_COMPONENT linnet_development
    ARCHIVE COMPONENT linnet_development)
  install(EXPORT linnet-${kind}-targets NAMESPACE linnet:: DESTINATION ${package_folder} COMPONENT linnet_development)
endforeach()

# find_package
list(TRANSFORM linnet_packages REPLACE "(.+)" "  find_dependency(\\1)" OUTPUT_VARIABLE LINNET_FIND_DEPENDENCIES)
list(JOIN LINNET_FIND_DEPENDENCIES "\n" LINNET_FIND_DEPENDENCIES)
if(BUILD_SHARED_LIBS)
  set(LINNET_DEFAULT_KIND shared)
else()
  set(LINNET_DEFAULT_KIND static)
endif()
configure_package_config_file(cmake/linnet-config.cmake.in linnet-config.cmake INSTALL_DESTINATION ${package_folder}
                              NO_SET_AND_CHECK_MACRO
                              NO_CHECK_REQUIRED_COMPONENTS_MACRO)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
else()
  set(compatibility SameMajorVersion)
endif()
write_basic_package_version_file(linnet-config-version.cmake COMPATIBILITY ${compatibility})
install(FILES ${PROJECT_BINARY_DIR}/linnet-config.cmake ${PROJECT_BINARY_DIR}/linnet-config-version.cmake cmake/optional.cmake
        DESTINATION ${package_folder} COMPONENT linnet_development)

# pkg-config. Its file lies in LIBDIR/pkgconfig and finds the rest from there, wherever the tree is moved to.
file(RELATIVE_PATH LINNET_PREFIX_FROM_FILE ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" LINNET_PREFIX_FROM_FILE "${LINNET_PREFIX_FROM_FILE}")
file(RELATIVE_PATH LINNET_LIBRARIES ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH LINNET_HEADERS ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
list(TRANSFORM LINNET_LINK_OPTIONS REPLACE "^LINKER:" "-Wl," OUTPUT_VARIABLE libraries)
foreach(library fmt::fmt PNG::PNG ZLIB::ZLIB hwy::hwy)
  get_target_property(file ${library} LOCATION)
  get_filename_component(folder ${file} DIRECTORY)
  if(NOT folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
    list(APPEND libraries -L${folder})
  endif()
endforeach()
list(REMOVE_DUPLICATES libraries)
# Not through their own files for pkg-config: with --static these name libraries that Debian's packages leave out, and their
# compiler options would reach programs that use the shared library.
list(TRANSFORM LINNET_WITH PREPEND -l OUTPUT_VARIABLE optional)
list(APPEND libraries ${optional} -lfmt -lpng -lz -lhwy -lstdc++ -lm)
list(JOIN libraries " " libraries)
# The static library needs these. Where both libraries are installed, -llinnet is the shared one, which does not.
set(LINNET_PKG_CONFIG "Libs: -L\${libdir} -llinnet")
if(LINNET_KINDS STREQUAL "static")
  string(APPEND LINNET_PKG_CONFIG " ${libraries}")
elseif("static" IN_LIST LINNET_KINDS)
  string(APPEND LINNET_PKG_CONFIG "\nLibs.private: ${libraries}")
endif()
configure_file(cmake/linnet.pc.in linnet.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/linnet.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT linnet_development)
