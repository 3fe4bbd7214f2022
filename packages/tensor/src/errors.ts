/**
 * The error family of every Winnow package. An error carries typed fields and builds its message from them, so that a
 * program can react to `code` and a user can read what was expected and what was found.
 */

/** Stable identifiers of the error families. */
export type WinnowErrorCode =
  | 'shape'
  | 'dtype'
  | 'unsupported-op'
  | 'capacity'
  | 'format'
  | 'released'
  | 'backend'
  | 'device-lost'
  | 'argument'
  | 'io'
  | 'non-finite';

const brand: symbol = Symbol.for('winnow.error');

/**
 * Root of all errors that Winnow throws deliberately. `WinnowError.isInstance` also recognizes errors of another copy
 * of this package, which `instanceof` does not.
 */
export class WinnowError extends Error {
  override readonly name: string = 'WinnowError';
  readonly code: WinnowErrorCode;

  constructor(code: WinnowErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
    Object.defineProperty(this, brand, { value: true });
  }

  static isInstance(value: unknown): value is WinnowError {
    return value instanceof Error && (value as unknown as Record<symbol, unknown>)[brand] === true;
  }
}

/** True for errors of this family from any copy of this package. */
function isOfFamily(value: unknown, code: WinnowErrorCode): boolean {
  return WinnowError.isInstance(value) && value.code === code;
}

/** A shape or an element count does not match: `"<op>: <rule>, expected <X>, got <Y>"`. */
export class ShapeError extends WinnowError {
  override readonly name: string = 'ShapeError';
  readonly op: string;
  readonly expected: string;
  readonly actual: string;

  constructor(fields: { op: string; rule: string; expected: string; actual: string }) {
    super('shape', `${fields.op}: ${fields.rule}, expected ${fields.expected}, got ${fields.actual}`);
    this.op = fields.op;
    this.expected = fields.expected;
    this.actual = fields.actual;
  }

  static override isInstance(value: unknown): value is ShapeError {
    return isOfFamily(value, 'shape');
  }
}

/** An operation does not accept a data type. */
export class DTypeError extends WinnowError {
  override readonly name: string = 'DTypeError';
  readonly op: string;
  readonly expected: string;
  readonly actual: string;

  constructor(fields: { op: string; expected: string; actual: string }) {
    super('dtype', `${fields.op}: dtype, expected ${fields.expected}, got ${fields.actual}`);
    this.op = fields.op;
    this.expected = fields.expected;
    this.actual = fields.actual;
  }

  static override isInstance(value: unknown): value is DTypeError {
    return isOfFamily(value, 'dtype');
  }
}

/** A backend has no kernel for an op, and fallback is not allowed. */
export class UnsupportedOpError extends WinnowError {
  override readonly name: string = 'UnsupportedOpError';
  readonly op: string;
  readonly backend: string;
  readonly reason: string;

  constructor(fields: { op: string; backend: string; reason: string }) {
    super('unsupported-op', `${fields.op}: not supported by backend ${fields.backend}: ${fields.reason}`);
    this.op = fields.op;
    this.backend = fields.backend;
    this.reason = fields.reason;
  }

  static override isInstance(value: unknown): value is UnsupportedOpError {
    return isOfFamily(value, 'unsupported-op');
  }
}

/** A finite resource is exhausted or too small: memory, a cache, a context, a limit. */
export class CapacityError extends WinnowError {
  override readonly name: string = 'CapacityError';
  readonly resource: string;
  readonly needed: number;
  readonly available: number;
  readonly unit: string;
  /** The input that is too large, if the input is the cause, so that retrying is pointless. */
  readonly source: string | undefined;
  /** The field of that input. */
  readonly field: string | undefined;

  constructor(fields: {
    resource: string;
    needed: number;
    available: number;
    unit: string;
    hint?: string;
    source?: string;
    field?: string;
  }) {
    const { resource, needed, available, unit, source, field } = fields;
    const hint = fields.hint === undefined ? '' : ` (${fields.hint})`;
    const place = [source, field].filter((part) => part !== undefined && part !== '').map((part) => `${part}: `);
    super('capacity', `${place.join('')}${resource}: needed ${needed} ${unit}, available ${available} ${unit}${hint}`);
    this.resource = resource;
    this.needed = needed;
    this.available = available;
    this.unit = unit;
    this.source = source;
    this.field = field;
  }

  static override isInstance(value: unknown): value is CapacityError {
    return isOfFamily(value, 'capacity');
  }
}

/** A file or message violates its format. `byteOffset` is the start of the offending field, if known. */
export class FormatError extends WinnowError {
  override readonly name: string = 'FormatError';
  readonly source: string;
  readonly byteOffset: number | undefined;
  readonly field: string;

  constructor(
    fields: { source: string; byteOffset?: number; field: string; message: string },
    options?: { cause?: unknown },
  ) {
    const at = fields.byteOffset === undefined ? '' : ` at byte ${fields.byteOffset}`;
    super('format', `${fields.source}${at}: ${fields.field}: ${fields.message}`, options);
    this.source = fields.source;
    this.byteOffset = fields.byteOffset;
    this.field = fields.field;
  }

  static override isInstance(value: unknown): value is FormatError {
    return isOfFamily(value, 'format');
  }
}

/** A handle was used after it was released or its owner was disposed of. */
export class ReleasedError extends WinnowError {
  override readonly name: string = 'ReleasedError';
  readonly resource: string;

  constructor(resource: string) {
    super('released', `${resource}: used after it was released`);
    this.resource = resource;
  }

  static override isInstance(value: unknown): value is ReleasedError {
    return isOfFamily(value, 'released');
  }
}

/** A backend failed: a run was already in progress, or native code returned an error status. */
export class BackendError extends WinnowError {
  override readonly name: string = 'BackendError';
  readonly backend: string;
  readonly nativeCode: number | undefined;

  constructor(fields: { backend: string; message: string; nativeCode?: number }, options?: { cause?: unknown }) {
    super('backend', `${fields.backend}: ${fields.message}`, options);
    this.backend = fields.backend;
    this.nativeCode = fields.nativeCode;
  }

  static override isInstance(value: unknown): value is BackendError {
    return isOfFamily(value, 'backend');
  }
}

/** The device of a backend is gone, with all memory and programs on it: a worker died, the GPU was reset. */
export class DeviceLostError extends WinnowError {
  override readonly name: string = 'DeviceLostError';
  readonly backend: string;
  readonly reason: string;

  constructor(fields: { backend: string; reason: string }, options?: { cause?: unknown }) {
    super('device-lost', `${fields.backend}: device lost: ${fields.reason}`, options);
    this.backend = fields.backend;
    this.reason = fields.reason;
  }

  static override isInstance(value: unknown): value is DeviceLostError {
    return isOfFamily(value, 'device-lost');
  }
}

/** A caller passed an invalid option or argument: `"<argument>: expected <X>, got <Y>"`. */
export class ArgumentError extends WinnowError {
  override readonly name: string = 'ArgumentError';
  readonly argument: string;
  readonly expected: string;
  readonly actual: string;

  constructor(fields: { argument: string; expected: string; actual: string; hint?: string }) {
    const hint = fields.hint === undefined ? '' : ` (${fields.hint})`;
    super('argument', `${fields.argument}: expected ${fields.expected}, got ${fields.actual}${hint}`);
    this.argument = fields.argument;
    this.expected = fields.expected;
    this.actual = fields.actual;
  }

  static override isInstance(value: unknown): value is ArgumentError {
    return isOfFamily(value, 'argument');
  }
}

/** Reading or writing failed outside of Winnow: a short read, a refused connection, a full disk. */
export class IoError extends WinnowError {
  override readonly name: string = 'IoError';
  readonly source: string;
  readonly byteOffset: number | undefined;
  /** What went wrong: the message without the source and the offset. */
  readonly detail: string;

  constructor(fields: { source: string; byteOffset?: number; message: string }, options?: { cause?: unknown }) {
    const at = fields.byteOffset === undefined ? '' : ` at byte ${fields.byteOffset}`;
    super('io', `${fields.source}${at}: ${fields.message}`, options);
    this.source = fields.source;
    this.byteOffset = fields.byteOffset;
    this.detail = fields.message;
  }

  static override isInstance(value: unknown): value is IoError {
    return isOfFamily(value, 'io');
  }
}

/** A model computed a value that is not finite: a weight is broken, or an activation exceeds the range of its dtype. */
export class NonFiniteError extends WinnowError {
  override readonly name: string = 'NonFiniteError';
  /** What the caller wanted: `logits`, `embeddings`. */
  readonly result: string;
  readonly value: number;
  /** The first tensor with such a value, if one was found: a weight, by its name in the file, or keys or values of a layer. */
  readonly tensor: string | undefined;

  constructor(
    fields: { result: string; value: number; tensor?: string | undefined; reason?: string },
    options?: { cause?: unknown },
  ) {
    const { result, value, tensor, reason } = fields;
    const first = tensor === undefined ? [] : [`the first tensor with such a value is ${tensor}`];
    const why = [...first, ...(reason === undefined ? [] : [reason])].map((part) => `; ${part}`);
    super('non-finite', `${result}: expected finite values, got ${value}${why.join('')}`, options);
    this.result = result;
    this.value = value;
    this.tensor = tensor;
  }

  static override isInstance(value: unknown): value is NonFiniteError {
    return isOfFamily(value, 'non-finite');
  }
}

/** Checks an internal invariant. A failure is a bug in Winnow, not in the caller's input. */
export function invariant(condition: unknown, message: string): asserts condition {
  if (!condition) throw new Error(`Winnow internal error: ${message}`);
}
