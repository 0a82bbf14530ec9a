# What is installed beside the programs and the library.
file(GLOB manual CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/man/*.[1-8])
foreach(page IN LISTS manual)
	string(REGEX REPLACE ".*\\.([1-8])$" "\\1" section ${page})
	install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()
if(EXISTS ${PROJECT_SOURCE_DIR}/packaging/kvraild.service AND TARGET kvraild)
	install(FILES packaging/kvraild.service DESTINATION lib/systemd/system)
endif()
