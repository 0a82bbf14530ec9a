# The public library: libkvrail.so and libkvrail.a, both with the kvr_* functions of include/kvrail.h and nothing else.
set(client_type "")
if(TARGET kvr_client)
	get_target_property(client_type kvr_client TYPE)
endif()
if(NOT client_type STREQUAL STATIC_LIBRARY OR KVRAIL_FUZZ)
	kvrail_left_out(libkvrail "no src/client, or a fuzzing build")
	return()
endif()

# The version script names what is exported, so the client's own functions may be visible; all below it stays hidden.
set_target_properties(kvr_client PROPERTIES C_VISIBILITY_PRESET default)

set(client_below "")
foreach(module IN ITEMS gpu verbs config protocol base)
	get_target_property(type kvr_${module} TYPE)
	if(type STREQUAL STATIC_LIBRARY)
		list(APPEND client_below kvr_${module})
	endif()
endforeach()

add_library(kvrail SHARED $<TARGET_OBJECTS:kvr_client>)
set_target_properties(kvrail PROPERTIES LINKER_LANGUAGE C VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
	LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/kvrail.map LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
target_link_libraries(kvrail PRIVATE ${client_below} kvr_flags)
target_link_options(kvrail PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/kvrail.map)
if(NOT KVRAIL_SANITIZE)
	target_link_options(kvrail PRIVATE -Wl,-z,defs -Wl,--as-needed)
endif()

# One relocatable object in which internal names are local: a program may have a ring_init of its own.
set(static_below "")
foreach(module IN LISTS client_below)
	list(APPEND static_below $<TARGET_FILE:${module}>)
endforeach()
set(static_library ${CMAKE_BINARY_DIR}/lib/libkvrail.a)
add_custom_command(OUTPUT ${static_library}
	COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/lib
	COMMAND ${CMAKE_LINKER} -r -o ${CMAKE_BINARY_DIR}/lib/kvrail.o $<TARGET_OBJECTS:kvr_client>
		--start-group ${static_below} --end-group
	COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=kvr_* ${CMAKE_BINARY_DIR}/lib/kvrail.o
	COMMAND ${CMAKE_COMMAND} -E rm -f ${static_library}
	COMMAND ${CMAKE_AR} rcs ${static_library} ${CMAKE_BINARY_DIR}/lib/kvrail.o
	DEPENDS kvr_client ${client_below} $<TARGET_OBJECTS:kvr_client>
	COMMAND_EXPAND_LISTS VERBATIM COMMENT "Linking relocatable ${static_library}")
add_custom_target(kvrail_static ALL DEPENDS ${static_library})

# What a static link needs besides, for kvrail.pc.
set(KVRAIL_PC_LIBS_PRIVATE "-lpthread -ldl -lm")
set(KVRAIL_PC_REQUIRES_PRIVATE "")
if(TARGET kvr_part_openssl)
	set(KVRAIL_PC_REQUIRES_PRIVATE "libcrypto")
endif()

# From where kvrail.pc itself lies: --prefix of cmake --install is not known here.
file(RELATIVE_PATH KVRAIL_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" KVRAIL_PC_PREFIX "\${pcfiledir}/${KVRAIL_PC_PREFIX}")
configure_file(cmake/kvrail.pc.in ${CMAKE_BINARY_DIR}/kvrail.pc @ONLY)
configure_file(cmake/kvrailConfig.cmake.in ${CMAKE_BINARY_DIR}/kvrailConfig.cmake @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/kvrailConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS kvrail LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(FILES ${static_library} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(FILES include/kvrail.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)
install(FILES ${CMAKE_BINARY_DIR}/kvrail.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
install(FILES ${CMAKE_BINARY_DIR}/kvrailConfig.cmake ${CMAKE_BINARY_DIR}/kvrailConfigVersion.cmake
	DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kvrail COMPONENT library)
