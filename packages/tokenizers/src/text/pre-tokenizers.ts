/**
 * Pre-tokenizers of byte-level BPE by their name in `tokenizer.ggml.pre`: how text is split into words before merging.
 * Names, patterns and defaults follow llama.cpp, where several names share a pattern:
 * https://github.com/ggml-org/llama.cpp/blob/00ad355e009e83abf98f96a6ded7193b95763681/src/llama-vocab.cpp
 * Where llama.cpp simplifies a model's own pattern (it ignores letter case outside ASCII), so do these.
 */
import type { Splitter } from './split.js';
import {
  chainSplitters,
  compilePattern,
  digitBoundarySplitter,
  newlineSplitter,
  numberGroupSplitter,
  patternSplitter,
  trailingSpaceSplitter,
} from './split.js';

/** The rules that a pre-tokenizer name selects. */
export interface PreTokenizerRules {
  readonly split: () => Splitter;
  /** A word that is itself a token is emitted without merging. */
  readonly ignoreMerges?: boolean;
  /** Default of `add_bos_token`. */
  readonly addBos?: boolean;
  /** Merging works on characters, with spaces as U+2581, instead of on mapped bytes. */
  readonly characters?: boolean;
  /** A word of newlines that is a token is not merged. */
  readonly wholeNewlines?: boolean;
}

const CONTRACTIONS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
const SPACES = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const WORD = '[^\\r\\n\\p{L}\\p{N}]?\\p{L}+';
const MARKS = ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*';
const LLAMA3 = `${CONTRACTIONS}|${WORD}|\\p{N}{1,3}|${MARKS}|${SPACES}`;
const QWEN2 = `${CONTRACTIONS}|${WORD}|\\p{N}|${MARKS}|${SPACES}`;
const ASCII_MARK_WORD = '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+';
const CJK_KANA = '[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+';
// Needs the v flag. The second range contains whitespace, which llama.cpp removes from the text beforehand.
const DEEPSEEK_CJK = '[[\\u4E00-\\u9FA5\\u0800-\\u4E00\\uAC00-\\uD7FF]--\\s]+';
const BLOOM = ' ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+';
const HAN =
  '\\u4E00-\\u9FFF\\u3400-\\u4DBF\\u{20000}-\\u{2A6DF}\\u{2A700}-\\u{2B73F}\\u{2B740}-\\u{2B81F}\\u{2B820}-\\u{2CEAF}' +
  '\\u{2CEB0}-\\u{2EBEF}\\uF900-\\uFAFF\\u{2F800}-\\u{2FA1F}';

// A word of uppercase then lowercase letters, where only ASCII letters have case. Needs the v flag.
function casedWord(letters: string, contractions: string): string {
  const notLower = `[${letters}--[a-z]]`;
  const notUpper = `[${letters}--[A-Z]]`;
  const lead = '[^\\r\\n\\p{L}\\p{N}]?';
  return `${lead}${notLower}*${notUpper}+${contractions}|${lead}${notLower}+${notUpper}*${contractions}`;
}

const CASED_TAIL = ` ?[^\\s\\p{L}\\p{N}]+[\\r\\n\\/]*|${SPACES}`;

// Cased letters as DeepSeek's first tokenizer lists them.
const DEEPSEEK_LETTERS =
  'A-Za-z\\u00B5\\u00C0-\\u00D6\\u00D8-\\u00F6\\u00F8-\\u01BA\\u01BC-\\u01BF\\u01C4-\\u0293\\u0295-\\u02AF\\u0370-\\u0373' +
  '\\u0376\\u0377\\u037B-\\u037D\\u037F\\u0386\\u0388-\\u038A\\u038C\\u038E-\\u03A1\\u03A3-\\u03F5\\u03F7-\\u0481' +
  '\\u048A-\\u052F\\u0531-\\u0556\\u10A0-\\u10C5\\u13A0-\\u13F5\\u13F8-\\u13FD\\u1C90-\\u1CBA\\u1CBD-\\u1CBF\\u1D00-\\u1D2B' +
  '\\u1D6B-\\u1D77\\u1D79-\\u1D9A\\u1E00-\\u1F15\\u1F18-\\u1F1D\\u1F20-\\u1F45\\u1F48-\\u1F4D\\u1F50-\\u1F57\\u1F59\\u1F5B' +
  '\\u1F5D\\u1F5F-\\u1F7D\\u1F80-\\u1FB4\\u1FB6-\\u1FBC\\u1FBE\\u1FC2-\\u1FC4\\u1FC6-\\u1FCC\\u1FD0-\\u1FD3\\u1FD6-\\u1FDB' +
  '\\u1FE0-\\u1FEC\\u1FF2-\\u1FF4\\u1FF6-\\u1FFC\\u2102\\u2107\\u210A-\\u2113\\u2115\\u2119-\\u211D\\u2124\\u2126\\u2128' +
  '\\u212A-\\u212D\\u212F-\\u2134\\u2139\\u213C-\\u213F\\u2145-\\u2149\\u214E\\u2183\\u2184\\u2C00-\\u2C7B\\u2C7E-\\u2CE4' +
  '\\u2CEB-\\u2CEE\\u2CF2\\u2CF3\\uA640-\\uA66D\\uA680-\\uA69B\\uA722-\\uA76F\\uA771-\\uA787\\uA78B-\\uA78E\\uAB70-\\uABBF' +
  '\\uFB00-\\uFB06\\uFB13-\\uFB17\\uFF21-\\uFF3A\\uFF41-\\uFF5A\\u{10400}-\\u{1044F}\\u{104B0}-\\u{104D3}' +
  '\\u{104D8}-\\u{104FB}\\u{10C80}-\\u{10CB2}\\u{10CC0}-\\u{10CF2}\\u{118A0}-\\u{118DF}\\u{1E900}-\\u{1E943}';

const AFMOE_SCRIPTS =
  '[\\u4E00-\\u9FFF\\u3400-\\u4DBF\\u8C48-\\uFAFF\\u3040-\\u309F\\u30A0-\\u30FF\\uFF65-\\uFF9F\\u2F00-\\u2FDF\\u0E40-\\u0E7F' +
  '\\u0E80-\\u0EFF\\u1780-\\u17FF\\u1000-\\u109F\\uAA60-\\uAA7F\\uA9E0-\\uA9FF\\uAC00-\\uD7AF\\u1100-\\u11FF]+';

const TRAILING_SPACES = '\\s+$';

function patterns(...sources: readonly string[]): () => Splitter {
  return () => chainSplitters(sources.map(splitterOf));
}

function splitterOf(source: string): Splitter {
  return source === TRAILING_SPACES ? trailingSpaceSplitter() : patternSplitter(compilePattern(source, flagOf(source)));
}

function flagOf(source: string): 'u' | 'v' {
  return source.includes('--') ? 'v' : 'u';
}

function setPattern(source: string): () => Splitter {
  return () => patternSplitter(compilePattern(source, 'v'));
}

const gpt2 = patterns(GPT2);
const llama3 = patterns(LLAMA3);
const qwen2 = patterns(QWEN2);
const digits = patterns('\\p{N}', GPT2);
const deepseek3 = patterns(
  '\\p{N}{1,3}',
  CJK_KANA,
  `${ASCII_MARK_WORD}|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|${SPACES}`,
);
const gpt4o = setPattern(`${casedWord('\\p{L}', `${CONTRACTIONS}?`)}|\\p{N}{1,3}|${CASED_TAIL}`);
const bailing = patterns(
  `'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|${WORD}|\\p{N}|${MARKS}|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+`,
);
const lettersAndMarks = `[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+${CONTRACTIONS}?`;

const rules: readonly (readonly [names: string, rules: PreTokenizerRules])[] = [
  ['default', { split: patterns('[\\p{P}\\$\\+<=>\\^~\\|]+', GPT2, '\\p{N}+', '[0-9][0-9][0-9]') }],
  [
    'gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert exaone4 mpt olmo jais ' +
      'trillion granite-docling jina-v1-en jina-v2-code roberta-bpe',
    { split: gpt2 },
  ],
  [
    'llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano',
    { split: llama3, ignoreMerges: true, addBos: true },
  ],
  ['dbrx smaug-bpe glm4 chatglm-bpe', { split: llama3 }],
  ['minicpm5', { split: patterns('\\p{N}{1,3}', LLAMA3.replace('{1,3}', '+')), ignoreMerges: true }],
  [
    'jais-2',
    {
      split: patterns(
        `${CONTRACTIONS}|${WORD}|\\p{N}{1,3}|${MARKS}|\\s*[\\r\\n]+|` +
          [512, 256, 128, 64, 32, 16, 8, 4].map((count) => `\\s{${count}}(?!\\S)|`).join('') +
          '\\s{1,2}(?!\\S)|\\s{1}',
      ),
    },
  ],
  ['qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2', { split: qwen2 }],
  ['ufakzeka', { split: patterns(`${WORD}|\\p{N}|${MARKS}|${SPACES}`) }],
  ['laguna', { split: () => chainSplitters([newlineSplitter(), qwen2()]) }],
  [
    'qwen35',
    {
      split: patterns(
        `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|${SPACES}`,
      ),
    },
  ],
  [
    'deepseek-llm',
    {
      // U+3000 is classified as whitespace first, so the last range starts after it.
      split: patterns(
        '[\\r\\n]',
        `\\s?[${DEEPSEEK_LETTERS}]+`,
        '\\s?[!-\\/:-~\\uFF01-\\uFF0F\\uFF1A-\\uFF5E\\u2018-\\u201F\\u3001-\\u3002]+',
        TRAILING_SPACES,
        DEEPSEEK_CJK,
        '\\p{N}+',
      ),
    },
  ],
  ['deepseek-coder', { split: patterns('[\\r\\n]', '\\s?\\p{L}+', '\\s?\\p{P}+', DEEPSEEK_CJK, '\\p{N}') }],
  ['deepseek-v3 hunyuan-dense joyai-llm hy_v4', { split: deepseek3 }],
  [
    'spark2_5',
    {
      split: patterns(
        '\\p{N}{1,3}',
        CJK_KANA,
        `${ASCII_MARK_WORD}|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)|\\s+`,
        '\\p{N}',
      ),
    },
  ],
  [
    'youtu',
    {
      split: patterns(
        '[\\uAC00-\\uD7A3\\u3131-\\u318E]+|[\\uFF01\\u2026\\u201C\\u201D\\u2018\\u2019\\u2014\\uFF1A\\uFF1B\\uFF0C\\u3001-\\u303F' +
          '\\uFE30-\\uFE4F]+|[\\u3105-\\u312F]+|[\\u4E00-\\u9FA5\\u3040-\\u309F\\u30A0-\\u30FF]+',
        `${lettersAndMarks}|\\p{N}|${CASED_TAIL}`,
      ),
      ignoreMerges: true,
    },
  ],
  ['falcon', { split: patterns('[\\p{P}\\$\\+<=>\\^~\\|`]+', GPT2, '[0-9][0-9][0-9]') }],
  ['starcoder refact command-r smollm codeshell exaone minerva-7b mellum2', { split: digits }],
  ['poro-chat bloom gpt3-finnish', { split: patterns(BLOOM) }],
  ['viking', { split: patterns(BLOOM, '\\p{N}') }],
  [
    'tekken',
    { split: setPattern(`${casedWord('\\p{L}', '')}|\\p{N}|${CASED_TAIL}`), ignoreMerges: true, addBos: true },
  ],
  [
    'chameleon',
    {
      split: patterns(
        '<sentinel:[0-9]+>',
        '(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z',
        '([\\t\\n]|    |  )',
        '\\p{N}',
        '[\\p{P}!-\\/:-@\\[-`\\{-~]',
        GPT2,
      ),
      addBos: true,
    },
  ],
  ['gpt-4o llama4 kanana2 talkie minimax-m2', { split: gpt4o }],
  [
    'granite-embed-multi-97m',
    {
      split: setPattern(`${casedWord('[\\p{L}\\p{M}]', `${CONTRACTIONS}?`)}|\\p{N}{1,3}|${CASED_TAIL}`),
      ignoreMerges: true,
    },
  ],
  [
    'tiny_aya cohere2moe',
    {
      split: () =>
        chainSplitters([
          numberGroupSplitter(),
          patternSplitter(compilePattern(`${lettersAndMarks}|\\p{N}{1,3}|${CASED_TAIL}`)),
        ]),
    },
  ],
  [
    'kimi-k2',
    {
      split: setPattern(
        `[${HAN}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}--[${HAN}]]+${CONTRACTIONS}?|\\p{N}{1,3}|${MARKS}|${SPACES}`,
      ),
    },
  ],
  ['superbpe', { split: () => chainSplitters([patterns('\\p{N}+')(), digitBoundarySplitter()]) }],
  ['bailingmoe bailingmoe2 llada-moe', { split: bailing }],
  ['seed-coder', { split: patterns(`${CONTRACTIONS}|${WORD}|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|${SPACES}`) }],
  [
    'afmoe',
    {
      split: () =>
        chainSplitters([
          numberGroupSplitter(),
          patternSplitter(compilePattern(AFMOE_SCRIPTS)),
          patternSplitter(
            compilePattern(
              `${ASCII_MARK_WORD}|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|${SPACES}`,
            ),
          ),
        ]),
    },
  ],
  [
    'exaone-moe',
    {
      split: patterns(
        `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n\\/]?|` +
          '\\s*[\\r\\n]|\\s+(?!\\S)|\\s+',
      ),
    },
  ],
  ['gemma4 granite-embed-multi-311m', { split: newlineSplitter, characters: true, addBos: true, wholeNewlines: true }],
  ['sarvam-moe', { split: newlineSplitter, characters: true }],
];

let byName: Map<string, PreTokenizerRules> | undefined;

function table(): Map<string, PreTokenizerRules> {
  byName ??= new Map(rules.flatMap(([names, rule]) => names.split(' ').map((name) => [name, rule] as const)));
  return byName;
}

/** Names that `preTokenizerRules` knows, in alphabetical order. */
export function preTokenizerNames(): string[] {
  return [...table().keys()].sort();
}

/** Rules of a pre-tokenizer name, or `undefined` for an unknown one. */
export function preTokenizerRules(name: string): PreTokenizerRules | undefined {
  return table().get(name);
}
