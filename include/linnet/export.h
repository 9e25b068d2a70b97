#ifndef LINNET_EXPORT_H_
#define LINNET_EXPORT_H_

/* LINNET_API marks what the shared library exports. Everything else in it is hidden. */

#if defined(__GNUC__)
#define LINNET_API __attribute__((visibility("default")))
#else
#define LINNET_API
#endif

#endif /* LINNET_EXPORT_H_ */
