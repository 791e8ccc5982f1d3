# cmake -DIN=file -DOUT=file.c -DNAME=symbol -P embed.cmake: a file as a C array with its length.
file(READ ${IN} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "#include <stddef.h>\nextern const unsigned char ${NAME}[];\nextern const size_t ${NAME}_len;\nconst unsigned char ${NAME}[] = {\n${bytes}0};\nconst size_t ${NAME}_len = sizeof ${NAME} - 1;\n")
