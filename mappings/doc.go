// Package mappings decides, purely, which IAM role a pod may use, and says why.
//
// It turns a pod, its namespace and the operator's [Rules] into one [Decision], whose trail the log, the Event on the
// pod, the debug endpoint and `pod2role explain` all print. It does no I/O and does not log; it never panics on what
// an annotation says, and what it cannot read it refuses.
package mappings
