/** String formats as regular expressions. Each accepts only valid strings, and nearly all of them. */

const day31 = '(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])';
const day30 = '(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)';
const day28 = '02-(?:0[1-9]|1\\d|2[0-8])'; // no leap days
const date = `\\d{4}-(?:${day31}|${day30}|${day28})`;
const clock = '(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?'; // no leap seconds
const zone = '(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)';
const label = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?';
const atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}";
const byte = '(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)';
const hex16 = '[0-9a-fA-F]{1,4}';
const urlPath = "(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*";

/** Formats by name. Unknown ones are an error, because a validator may enforce them. */
export const formats: ReadonlyMap<string, string> = new Map([
  ['date', date],
  ['time', `${clock}${zone}`],
  ['date-time', `${date}T${clock}${zone}`],
  [
    'duration',
    'P(?:\\d{1,6}W|\\d{1,6}D|\\d{1,6}M(?:\\d{1,6}D)?|\\d{1,6}Y(?:\\d{1,6}M(?:\\d{1,6}D)?)?|(?:\\d{1,6}D)?T\\d{1,6}(?:H(?:\\d{1,2}M(?:\\d{1,2}S)?)?|M(?:\\d{1,2}S)?|S))',
  ],
  ['email', `${atom}(?:\\.${atom}){0,3}@(?:${label}\\.){1,4}[A-Za-z]{2,20}`],
  ['hostname', `${label}(?:\\.${label}){0,3}`],
  ['ipv4', `(?:${byte}\\.){3}${byte}`],
  ['ipv6', `(?:${hex16}:){7}${hex16}|(?:${hex16}:){1,6}:${hex16}|::${hex16}|::`],
  ['uuid', '[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}'],
  ['uri', `https?://${label}(?:\\.${label}){0,3}(?::[1-9]\\d{0,3})?(?:/${urlPath})?(?:\\?${urlPath})?(?:#${urlPath})?`],
  ['regex', '[A-Za-z0-9 _]*'],
  ['json-pointer', '(?:/(?:[^~/\\u0000-\\u001f"\\\\]|~[01])*)*'],
]);

/** Formats of the specification that are not supported. */
const unsupported: ReadonlySet<string> = new Set([
  'idn-email',
  'idn-hostname',
  'uri-reference',
  'iri',
  'iri-reference',
  'uri-template',
  'relative-json-pointer',
]);

/** Whether the format is not in the specification, so that no validator enforces it. */
export function isOwnFormat(name: unknown): boolean {
  return typeof name === 'string' && !formats.has(name) && !unsupported.has(name);
}
