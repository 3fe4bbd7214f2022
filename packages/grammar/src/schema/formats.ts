/** String formats as regular expressions. Each accepts only valid strings, and nearly all of them. */

const day31 = '(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])';
const day30 = '(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)';
const day28 = '02-(?:0[1-9]|1\\d|2[0-8])';
/** Divisible by 4, and by 400 at the end of a century. */
const leapYear = '(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)';
const date = `(?:\\d{4}-(?:${day31}|${day30}|${day28})|${leapYear}-02-29)`;
const fraction = '(?:\\.\\d{1,30})?';
const hour = '(?:[01]\\d|2[0-3])';
const zone = `(?:[Zz]|[+-]${hour}:[0-5]\\d)`;
/** Leap seconds are inserted at midnight UTC. */
const time = `(?:${hour}:[0-5]\\d:[0-5]\\d${fraction}${zone}|23:59:60${fraction}(?:[Zz]|[+-]00:00))`;
/** Without hyphens in the third and fourth place, which only Punycode labels have. */
const label = (maxLength: number): string => {
  const [end, inner] = ['[A-Za-z0-9]', '[A-Za-z0-9-]'];
  return `${end}(?:${inner}{0,2}${end}|${inner}(?:${end}${inner}|-${end})${inner}{0,${maxLength - 5}}${end})?`;
};
/** At most 253 characters. */
const hostname = [
  `${label(63)}(?:\\.${label(63)}){0,2}`,
  `${label(62)}(?:\\.${label(62)}){3}`,
  `${label(20)}(?:\\.${label(20)}){4,9}`,
].join('|');
const atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]";
/** Without quotes, which other validators reject. */
const localPart = `${atom}{1,64}|${atom}{1,40}\\.${atom}{1,23}|${atom}{1,15}(?:\\.${atom}{1,15}){2,3}`;
const domain = `(?:${label(63)}\\.){1,3}${label(63)}`;
/** Characters of internationalized identifiers (RFC 3987). */
const basicUcs = '\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef';
const ucs = basicUcs + Array.from('123456789abcd', (plane) => `\\u{${plane}0000}-\\u{${plane}fffd}`).join('');
const basicAtom = `${atom.slice(0, -2)}${basicUcs}-]`;
const idnAtom = `${atom.slice(0, -2)}${ucs}-]`;
/** At most 64 bytes, of which a character takes three or four. */
const idnLocalPart = `${localPart}|${basicAtom}{1,21}|${basicAtom}{1,10}\\.${basicAtom}{1,10}|${idnAtom}{1,16}`;
const byte = '(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)';
const ipv4 = `(?:${byte}\\.){3}${byte}`;
const hex = '[0-9a-fA-F]{1,4}';
/** By the number of groups before `::`; the last two groups may be an IPv4 address. */
const ipv6 = [
  `(?:${hex}:){7}(?:${hex}|:)`,
  `(?:${hex}:){6}(?:${ipv4}|:${hex}|:)`,
  ...[5, 4, 3, 2, 1].map((before) => {
    const after = 7 - before;
    return `(?:${hex}:){${before}}(?:(?::${hex}){1,${after}}|(?::${hex}){0,${after - 2}}:${ipv4}|:)`;
  }),
  `:(?:(?::${hex}){1,7}|(?::${hex}){0,5}:${ipv4}|:)`,
].join('|');

/** Of later versions of IP. */
const futureAddress = `[vV][0-9A-Fa-f]{1,8}\\.[A-Za-z0-9._~!$&'()*+,;=:-]{1,40}`;

/** URIs and references (RFC 3986). @param more additional characters */
function resource(more: string): { readonly absolute: string; readonly relative: string } {
  const plain = `A-Za-z0-9._~!$&'()*+,;=${more}-`;
  const encoded = '|%[0-9A-Fa-f]{2}';
  const segment = `(?:[:@${plain}]${encoded})`;
  const rest = `(?:/${segment}*)*`;
  const query = `(?:\\?(?:[:@/?${plain}]${encoded})*)?(?:#(?:[:@/?${plain}]${encoded})*)?`;
  const authority = `//(?:(?:[:${plain}]${encoded})*@)?(?:\\[(?:${ipv6}|${futureAddress})\\]|(?:[${plain}]${encoded})*)(?::\\d{0,5})?`;
  const rooted = `(?:${authority}${rest}|/(?:${segment}+${rest})?)`;
  // a colon in the first segment would end a scheme
  const relativePath = `(?:[@${plain}]${encoded})+${rest}`;
  return {
    absolute: `[A-Za-z][A-Za-z0-9+.-]{0,30}:(?:${rooted}|${segment}+${rest})${query}`,
    relative: `(?:${rooted}|${relativePath})?${query}`,
  };
}

const uri = resource('');
const iri = resource(ucs);
const variable = '(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+(?::[1-9]\\d{0,3}|\\*)?';
const uriTemplate = `(?:[A-Za-z0-9._~!$&()*+,;=:@/?#${ucs}\\[\\]-]|%[0-9A-Fa-f]{2}|\\{[+#./;?&]?${variable}(?:,${variable})*\\})*`;
const days = '\\d+D';
const months = `\\d+M(?:${days})?`;
const seconds = '\\d+S';
const minutes = `\\d+M(?:${seconds})?`;
const durationTime = `T(?:\\d+H(?:${minutes})?|${minutes}|${seconds})`;
const durationDate = `(?:${days}|${months}|\\d+Y(?:${months})?)`;
const jsonPointer = '(?:/(?:[^~/]|~[01])*)*';

/** Matches regular expressions without flags. @param levels how deeply their groups may be nested */
function regexSource(levels: number): string {
  const escape = '\\\\(?:[dDwWsSfnrtv^$.*+?()\\[\\]{}|/\\\\]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|c[A-Za-z])';
  const member = `(?:a-z|A-Z|a-f|A-F|0-9|[^\\]\\\\\\[\\u0000-\\u001f-]|${escape})`;
  const characters = `\\[\\^?(?:-?${member}+-?)?\\]`;
  const quantifier = '(?:(?:[*+?]|\\{\\d{1,3}(?:,|,[1-9]\\d{3})?\\})\\??)?';
  const inside = levels === 0 ? '' : regexSource(levels - 1);
  const group = levels === 0 ? '' : `|\\((?:(?:\\?:)?${inside}\\)${quantifier}|\\?<?[=!]${inside}\\))`;
  const atoms = `(?:[^\\^$.*+?()\\[\\]{}|\\\\/\\u0000-\\u001f]|\\.|/|${escape}|${characters})`;
  const term = `(?:${atoms}${quantifier}|\\^|\\$|\\\\[bB]${group})`;
  return `${term}*(?:\\|${term}*)*`;
}

/** Formats of the specification and of OpenAPI by name. Others are annotations. */
export const formats: ReadonlyMap<string, string> = new Map([
  ['date', date],
  ['time', time],
  ['date-time', `${date}[Tt]${time}`],
  ['duration', `P(?:\\d+W|${durationDate}(?:${durationTime})?|${durationTime})`],
  ['email', `(?:${localPart})@${domain}`],
  ['idn-email', `(?:${idnLocalPart})@${domain}`],
  ['hostname', hostname],
  ['idn-hostname', hostname],
  ['ipv4', ipv4],
  ['ipv6', ipv6],
  ['uuid', '[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}'],
  ['uri', uri.absolute],
  ['uri-reference', `${uri.absolute}|${uri.relative}`],
  ['iri', iri.absolute],
  ['iri-reference', `${iri.absolute}|${iri.relative}`],
  ['uri-template', uriTemplate],
  ['regex', regexSource(2)],
  ['relative-json-pointer', `(?:0|[1-9]\\d*)(?:#|${jsonPointer})`],
  ['json-pointer', jsonPointer],
  ['byte', '(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?'],
]);
