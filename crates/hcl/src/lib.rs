//! HCL2, HCL1 and HCL-JSON: parser, values, evaluator, schema decoding, diagnostics as data; the job language in job.
