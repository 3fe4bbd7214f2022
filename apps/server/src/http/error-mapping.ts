/** Maps errors of the engine, of validation and of the framework to errors of the API. */
import type { FastifyError } from 'fastify';
import { ArgumentError, CapacityError, FormatError, ReleasedError, WinnowError } from '@winnow/tensor';
import { ApiError, badRequest, contextExceeded, missingParameter, unsupported } from './api-error.js';
import { isKnownParameter } from './request-body.js';

/** API names of the engine's options. */
const parameterNames: Readonly<Record<string, string>> = {
  maxTokens: 'max_tokens',
  topK: 'top_k',
  topP: 'top_p',
  minP: 'min_p',
  repetitionPenalty: 'repetition_penalty',
  presencePenalty: 'presence_penalty',
  frequencyPenalty: 'frequency_penalty',
  numTopLogprobs: 'top_logprobs',
  logitBias: 'logit_bias',
  jsonSchema: 'response_format',
  toolChoice: 'tool_choice',
};

/**
 * @param promptParam name of the prompt parameter of the request
 * @returns undefined for an internal error, which is not the request's fault
 */
export function engineApiError(error: unknown, promptParam: string): ApiError | undefined {
  if (error instanceof ApiError) return error;
  if (!WinnowError.isInstance(error)) return undefined;
  if (CapacityError.isInstance(error)) return capacityApiError(error, promptParam);
  if (ArgumentError.isInstance(error)) {
    const { argument } = error;
    const param = parameterNames[argument] ?? (/^(prompt|messages|texts)\b/.test(argument) ? promptParam : argument);
    const message = error.message.replace(`${argument}:`, `${parameterNames[argument] ?? argument}:`);
    return new ApiError({ status: 400, message, param }, { cause: error });
  }
  if (FormatError.isInstance(error)) {
    const { message, source, field } = error;
    // a template may take too many steps for a conversation
    const [param, code] =
      field === 'chat_template' ? [promptParam, 'invalid_chat_template'] : constraintOf(source, promptParam);
    if (param !== undefined) return new ApiError({ status: 400, message, param, code }, { cause: error });
  }
  if (ReleasedError.isInstance(error)) {
    const message = 'The model is being unloaded';
    return new ApiError({ status: 503, message, code: 'shutting_down', retryAfterSeconds: 1 }, { cause: error });
  }
  return undefined;
}

/** The API parameter to blame, by the location in the engine's error. */
function constraintOf(source: string, promptParam: string): readonly [param?: string, code?: string] {
  if (source === 'grammar') return ['grammar', 'invalid_grammar'];
  if (source === 'JSON schema') return ['response_format', 'invalid_json_schema'];
  if (source.startsWith('images[')) return [promptParam, 'invalid_image'];
  if (source.startsWith('parameters of tool')) return ['tools', 'invalid_json_schema'];
  return [];
}

function capacityApiError(error: CapacityError, promptParam: string): ApiError {
  const { resource, needed, available, unit, source = '' } = error;
  const [constrained, constraintCode] = constraintOf(source, promptParam);
  if (constrained !== undefined) {
    const { message } = error;
    return new ApiError({ status: 400, message, param: constrained, code: constraintCode }, { cause: error });
  }
  if (unit === 'tokens' && (resource === 'context' || resource.startsWith('texts'))) {
    return contextExceeded(promptParam, needed, available);
  }
  if (resource.startsWith('tokenizer')) return badRequest(promptParam, error.message);
  const message = 'The server has no capacity for this request now';
  return new ApiError({ status: 503, message, code: 'overloaded', retryAfterSeconds: 1 }, { cause: error });
}

/** Failures before a handler runs: bodies that are not JSON, too large, or do not match the schema. */
export function frameworkApiError(error: FastifyError): ApiError | undefined {
  const { validation, statusCode = 500 } = error;
  if (validation !== undefined) return validationApiError(validation);
  if (statusCode >= 500) return undefined;
  const codes: Readonly<Record<number, string>> = { 413: 'request_too_large', 415: 'unsupported_media_type' };
  return new ApiError({ status: statusCode, message: error.message, code: codes[statusCode] ?? 'invalid_request' });
}

type Validation = NonNullable<FastifyError['validation']>;

/** The deepest failure is the most specific: those above only repeat it. */
function validationApiError(validation: Validation): ApiError {
  const depth = ({ instancePath }: Validation[number]): number => instancePath.split('/').length;
  const failures = validation.filter(({ keyword }) => keyword !== 'anyOf');
  const [failure] = failures.toSorted((a, b) => depth(b) - depth(a));
  if (failure === undefined) return badRequest('body', 'does not match the schema');
  const { keyword, params, instancePath, message = 'is not valid' } = failure;
  const path = parameterPath(instancePath);
  if (keyword === 'additionalProperties') {
    const param = joinPath(path, String(params['additionalProperty']));
    if (isKnownParameter(param)) return unsupported(param, 'not supported by this server');
    const text = `Unrecognized request argument supplied: ${param}`;
    return new ApiError({ status: 400, message: text, param, code: 'unknown_parameter' });
  }
  if (keyword === 'required') {
    const param = joinPath(path, String(params['missingProperty']));
    return missingParameter(param);
  }
  // alternatives at one location: collect what each of them expects
  const wanted = failures.filter((other) => other.instancePath === instancePath).map((other) => expectation(other));
  const text = [...new Set(wanted)].join(', or ');
  const param = path === '' ? 'body' : path;
  return badRequest(param, text === '' ? message : text, keyword === 'type' ? 'invalid_type' : 'invalid_value');
}

function expectation({ keyword, params, message = 'is not valid' }: Validation[number]): string {
  if (keyword === 'enum') return `must be one of ${JSON.stringify(params['allowedValues'])}`;
  if (keyword === 'const') return `must be ${JSON.stringify(params['allowedValue'])}`;
  return message;
}

/** `/messages/0/content` to `messages[0].content` */
function parameterPath(pointer: string): string {
  return pointer
    .split('/')
    .slice(1)
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'))
    .reduce((path, part) => (/^\d+$/.test(part) ? `${path}[${part}]` : joinPath(path, part)), '');
}

function joinPath(path: string, name: string): string {
  return path === '' ? name : `${path}.${name}`;
}
