# Runs PROGRAM with ARGUMENTS, a list. Fails where its exit status is not 0 or its output does not match PATTERN.
execute_process(COMMAND ${PROGRAM} ${ARGUMENTS} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE error)
message("${output}${error}")
if(NOT status EQUAL 0)
  message(FATAL_ERROR "expected exit status 0, got ${status}")
endif()
if(NOT output MATCHES "${PATTERN}")
  message(FATAL_ERROR "expected output that matches \"${PATTERN}\"")
endif()
