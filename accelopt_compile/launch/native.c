/* One call of a kernel from Python, without a dispatcher: about 0.2 us.
 *
 * Kernel(address, inputs, symbols, outputs, release_gil, fallback, keep, most) is called as
 *     kernel(input..., symbol..., output...)   or, with one output,   kernel(input..., symbol..., out=output)
 * and returns None. It reads the data pointers, then runs
 *     int fn(void *const *tensors, const int64_t *sizes, int64_t threads).
 * `fallback` (same positional arguments) runs instead when there is no kernel, when it declines (nonzero), when a
 * symbol is 0 or above its entry in `most`, or when an argument is not a plain tensor. Needs Python.h only; torch gives us the reader of data pointers.
 *
 * kernel.many(tensors, sizes, large) makes one call for each of many instances, small ones side by side where OpenMP is.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>
#include <sys/mman.h>

#define MAX_ARGS 96
#define HUGE_LEAST ((size_t)8 << 20) /* as in huge_pages.py, which says why */
#define HUGE_PAGE ((uintptr_t)2 << 20)

typedef int (*kernel_fn)(void *const *tensors, const int64_t *sizes, int64_t threads);
typedef void *(*data_ptr_fn)(PyObject *);
typedef int (*threads_fn)(void);

static data_ptr_fn read_data_ptr;
static threads_fn omp_max_threads; /* the OpenMP runtime that torch.set_num_threads steers; NULL: ask Python each time */
static threads_fn omp_limit, omp_dynamic, omp_inside;
static PyObject *tensor_type, *parameter_type, *get_num_threads, *out_name, *nbytes_name, *dispatch_name, *tensor_dispatch;
static int in_forked_child; /* an OpenMP pool does not survive fork: a child that used it would hang */
static __thread char thread_ready;

static void after_fork(void) { in_forked_child = 1; }

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    kernel_fn fn;
    int inputs, symbols, outputs;
    char release_gil;
    PyObject *fallback, *keep;
    unsigned long long calls, fallbacks;
    int64_t *most; /* the largest size that each symbol may have */
} Kernel;

/* No more threads than OpenMP surely gives (OMP_THREAD_LIMIT, OMP_DYNAMIC, inside a team): a kernel may share its work out by the
 * number it is told, and what a missing thread should have written stays unwritten. */
static int64_t whole_team(int64_t wanted) {
    if (!omp_limit || !omp_dynamic || !omp_inside || wanted <= 1) return wanted;
    if (omp_dynamic() || omp_inside()) return 1;
    int64_t limit = omp_limit();
    return wanted < limit ? wanted : limit;
}

/* Threads for this call, or -1 with an exception. torch sets the count per thread on first use, so ask torch once. */
static int64_t thread_count(void) {
    if (in_forked_child) return 1;
    if (thread_ready && omp_max_threads) return whole_team(omp_max_threads());
    PyObject *answer = PyObject_CallNoArgs(get_num_threads);
    if (!answer) return -1;
    int64_t count = PyLong_AsLongLong(answer);
    Py_DECREF(answer);
    thread_ready = 1;
    return whole_team(count);
}

/* A subclass that leaves __torch_dispatch__ alone holds its elements as any tensor does; another may hold none at all. */
static int plain_subclass(PyObject *type) {
    if (!PyType_IsSubtype((PyTypeObject *)type, (PyTypeObject *)tensor_type)) return 0;
    PyObject *dispatch = PyObject_GetAttr(type, dispatch_name);
    if (!dispatch) PyErr_Clear();
    Py_XDECREF(dispatch);
    return dispatch && dispatch == tensor_dispatch;
}

static int plain_tensor(PyObject *o) {
    PyObject *type = (PyObject *)Py_TYPE(o);
    return type == tensor_type || type == parameter_type || plain_subclass(type);
}

/* 1: pointers and sizes are read; 0: the fallback must run; -1: exception. */
static int read_arguments(Kernel *self, PyObject *const *args, void **tensors, int64_t *sizes) {
    int first_output = self->inputs + self->symbols;
    for (int i = 0; i < self->symbols; i++) {
        sizes[i] = PyLong_AsLongLong(args[self->inputs + i]);
        if (sizes[i] == -1 && PyErr_Occurred()) return -1;
        if (sizes[i] == 0 || sizes[i] > self->most[i]) return 0;
    }
    for (int i = 0; i < self->inputs; i++) {
        if (!plain_tensor(args[i])) return 0;
        tensors[i] = read_data_ptr(args[i]);
    }
    for (int i = 0; i < self->outputs; i++) {
        if (!plain_tensor(args[first_output + i])) return 0;
        tensors[self->inputs + i] = read_data_ptr(args[first_output + i]);
    }
    return 1;
}

/* Ask for huge pages under an output that is about to be written. */
static void ask_for_huge_pages(PyObject *tensor, void *data) {
#ifdef MADV_HUGEPAGE
    PyObject *answer = PyObject_GetAttr(tensor, nbytes_name);
    size_t size = answer ? PyLong_AsSize_t(answer) : 0;
    Py_XDECREF(answer);
    if (PyErr_Occurred()) PyErr_Clear();
    else if (size >= HUGE_LEAST) {
        uintptr_t first = ((uintptr_t)data + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE, last = ((uintptr_t)data + size) / HUGE_PAGE * HUGE_PAGE;
        madvise((void *)first, last - first, MADV_HUGEPAGE); /* refused: nothing is lost */
    }
#endif
}

static int run_kernel(Kernel *self, void *const *tensors, const int64_t *sizes, int64_t threads) {
    int status;
    if (!self->release_gil) return self->fn(tensors, sizes, threads);
    Py_BEGIN_ALLOW_THREADS
    status = self->fn(tensors, sizes, threads);
    Py_END_ALLOW_THREADS
    return status;
}

static PyObject *kernel_call(PyObject *object, PyObject *const *given, size_t nargsf, PyObject *names) {
    Kernel *self = (Kernel *)object;
    Py_ssize_t count = PyVectorcall_NARGS(nargsf), named = names ? PyTuple_GET_SIZE(names) : 0;
    int wanted = self->inputs + self->symbols + self->outputs;
    int known = named == 0 || (named == 1 && PyUnicode_Compare(PyTuple_GET_ITEM(names, 0), out_name) == 0);
    if (count + named != wanted || !known)
        return PyErr_Format(PyExc_TypeError, "kernel takes %d tensors, %d sizes and %d outputs (one of them as out=)",
                            self->inputs, self->symbols, self->outputs);
    void *tensors[MAX_ARGS];
    int64_t sizes[MAX_ARGS];
    self->calls++;
    if (self->fn) {
        int ready = read_arguments(self, given, tensors, sizes);
        if (ready < 0) return NULL;
        if (ready) {
            int64_t threads = thread_count();
            if (threads < 0) return NULL;
            for (int i = 0; self->release_gil && i < self->outputs; i++) /* a short call has no such output */
                ask_for_huge_pages(given[self->inputs + self->symbols + i], tensors[self->inputs + i]);
            if (run_kernel(self, tensors, sizes, threads) == 0) Py_RETURN_NONE;
        }
    }
    self->fallbacks++;
    PyObject *result = PyObject_Vectorcall(self->fallback, given, (size_t)wanted, NULL); /* out= is last, so positional order holds */
    if (!result) return NULL;
    Py_DECREF(result);
    Py_RETURN_NONE;
}

/* The instances of one call of many(): `tensors` and `sizes` lie one instance after another. */
typedef struct {
    Kernel *self;
    void **tensors;
    int64_t *sizes;
    char *ready, *failed;
    int64_t count, large, threads;
} Many;

static void run_instance(const Many *m, int64_t k, int64_t threads) {
    int per = m->self->inputs + m->self->outputs;
    if (m->ready[k]) m->failed[k] = m->self->fn(m->tensors + k * per, m->sizes + k * m->self->symbols, threads) != 0;
}

static void run_instances(const Many *m) {
    for (int64_t k = 0; k < m->large; k++) run_instance(m, k, m->threads);
#ifdef _OPENMP
    if (m->threads > 1 && m->count - m->large > 1) {
#pragma omp parallel for schedule(dynamic, 1) num_threads((int)m->threads)
        for (int64_t k = m->large; k < m->count; k++) run_instance(m, k, 1);
        return;
    }
#endif
    for (int64_t k = m->large; k < m->count; k++) run_instance(m, k, m->threads > 1 && m->count - m->large == 1 ? m->threads : 1);
}

/* The reference instead of instance k. 0, or -1 with an exception. */
static int fall_back(Kernel *self, PyObject *tensors, PyObject *sizes, int64_t k) {
    int per = self->inputs + self->outputs, wanted = per + self->symbols;
    PyObject *args[MAX_ARGS];
    for (int i = 0; i < self->inputs; i++) args[i] = PyTuple_GET_ITEM(tensors, k * per + i);
    for (int i = 0; i < self->symbols; i++) args[self->inputs + i] = PyTuple_GET_ITEM(sizes, k * self->symbols + i);
    for (int i = 0; i < self->outputs; i++) args[self->inputs + self->symbols + i] = PyTuple_GET_ITEM(tensors, k * per + self->inputs + i);
    self->fallbacks++;
    PyObject *result = PyObject_Vectorcall(self->fallback, args, (size_t)wanted, NULL);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* 0, or -1 with an exception. An instance with a size of 0, or a tensor that is none of torch's own, goes to the fallback. */
static int read_instances(Many *m, PyObject *tensors, PyObject *sizes) {
    int per = m->self->inputs + m->self->outputs, symbols = m->self->symbols;
    for (int64_t k = 0; k < m->count; k++) {
        m->ready[k] = m->self->fn != NULL;
        for (int i = 0; i < symbols; i++) {
            int64_t size = PyLong_AsLongLong(PyTuple_GET_ITEM(sizes, k * symbols + i));
            if (size == -1 && PyErr_Occurred()) return -1;
            if (size == 0 || size > m->self->most[i]) m->ready[k] = 0;
            m->sizes[k * symbols + i] = size;
        }
        for (int i = 0; i < per && m->ready[k]; i++) {
            PyObject *tensor = PyTuple_GET_ITEM(tensors, k * per + i);
            if (plain_tensor(tensor)) m->tensors[k * per + i] = read_data_ptr(tensor);
            else m->ready[k] = 0;
        }
    }
    return 0;
}

/* many(tensors, sizes, large): see `native.Launched`. */
static PyObject *kernel_many(PyObject *object, PyObject *args) {
    Kernel *self = (Kernel *)object;
    PyObject *tensors, *sizes, *answer = NULL;
    long long large;
    if (!PyArg_ParseTuple(args, "O!O!L", &PyTuple_Type, &tensors, &PyTuple_Type, &sizes, &large)) return NULL;
    int per = self->inputs + self->outputs;
    int64_t given = PyTuple_GET_SIZE(tensors), count = given / per;
    if (given % per || PyTuple_GET_SIZE(sizes) != count * self->symbols)
        return PyErr_Format(PyExc_TypeError, "each instance takes %d tensors and %d sizes", per, self->symbols);
    int64_t threads = thread_count();
    if (threads < 0) return NULL;
    size_t bytes = (size_t)given * sizeof(void *) + (size_t)(count * self->symbols + 1) * sizeof(int64_t) + 2 * (size_t)count + 1;
    char *memory = PyMem_Calloc(bytes, 1);
    if (!memory) return PyErr_NoMemory();
    Many m = {self, (void **)memory, NULL, NULL, NULL, count, large < 0 ? 0 : large < count ? large : count, threads};
    m.sizes = (int64_t *)(memory + (size_t)given * sizeof(void *));
    m.ready = (char *)(m.sizes + count * self->symbols + 1);
    m.failed = m.ready + count;
    if (read_instances(&m, tensors, sizes) < 0) goto end;
    if (self->release_gil) {
        Py_BEGIN_ALLOW_THREADS
        run_instances(&m);
        Py_END_ALLOW_THREADS
    } else {
        run_instances(&m);
    }
    self->calls += (unsigned long long)count;
    for (int64_t k = 0; k < count; k++)
        if ((!m.ready[k] || m.failed[k]) && fall_back(self, tensors, sizes, k) < 0) goto end;
    answer = Py_NewRef(Py_None);
end:
    PyMem_Free(memory);
    return answer;
}

static PyObject *kernel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    unsigned long long address;
    int inputs, symbols, outputs, release_gil;
    PyObject *fallback, *keep, *most;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "KiiipOOO!", &address, &inputs, &symbols, &outputs, &release_gil, &fallback, &keep, &PyTuple_Type, &most))
        return NULL;
    if (inputs < 0 || symbols < 0 || outputs < 1 || inputs + symbols + outputs > MAX_ARGS)
        return PyErr_Format(PyExc_ValueError, "a kernel takes at most %d arguments", MAX_ARGS);
    if (PyTuple_GET_SIZE(most) != symbols && PyTuple_GET_SIZE(most) != 0)
        return PyErr_Format(PyExc_ValueError, "most takes a size for each of %d symbols, or none", symbols);
    Kernel *self = (Kernel *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->most = PyMem_Calloc((size_t)symbols + 1, sizeof(int64_t));
    if (!self->most) return Py_DECREF(self), PyErr_NoMemory();
    for (int i = 0; i < symbols; i++) {
        self->most[i] = PyTuple_GET_SIZE(most) ? PyLong_AsLongLong(PyTuple_GET_ITEM(most, i)) : INT64_MAX;
        if (self->most[i] == -1 && PyErr_Occurred()) return Py_DECREF(self), NULL;
    }
    self->vectorcall = kernel_call;
    self->fn = (kernel_fn)(uintptr_t)address;
    self->inputs = inputs;
    self->symbols = symbols;
    self->outputs = outputs;
    self->release_gil = (char)release_gil;
    self->fallback = Py_NewRef(fallback);
    self->keep = Py_NewRef(keep);
    return (PyObject *)self;
}

static void kernel_dealloc(Kernel *self) {
    Py_XDECREF(self->fallback);
    Py_XDECREF(self->keep);
    PyMem_Free(self->most);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef kernel_methods[] = {{"many", kernel_many, METH_VARARGS, "one call for many instances"}, {NULL, NULL, 0, NULL}};

static PyMemberDef kernel_members[] = {
    {"calls", T_ULONGLONG, offsetof(Kernel, calls), READONLY, "calls so far"},
    {"fallbacks", T_ULONGLONG, offsetof(Kernel, fallbacks), READONLY, "calls that ran the fallback"},
    {NULL, 0, 0, 0, NULL}};

static PyTypeObject kernel_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "accelopt_launcher.Kernel",
    .tp_basicsize = sizeof(Kernel),
    .tp_dealloc = (destructor)kernel_dealloc,
    .tp_vectorcall_offset = offsetof(Kernel, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_members = kernel_members,
    .tp_methods = kernel_methods,
    .tp_new = kernel_new,
};

/* configure(data_ptr_address, Tensor, Parameter, get_num_threads) */
static PyObject *configure(PyObject *module, PyObject *args) {
    unsigned long long address;
    (void)module;
    if (!PyArg_ParseTuple(args, "KOOO", &address, &tensor_type, &parameter_type, &get_num_threads)) return NULL;
    Py_INCREF(tensor_type);
    Py_INCREF(parameter_type);
    Py_INCREF(get_num_threads);
    tensor_dispatch = PyObject_GetAttr(tensor_type, dispatch_name);
    if (!tensor_dispatch) return NULL;
    read_data_ptr = (data_ptr_fn)(uintptr_t)address;
    omp_max_threads = (threads_fn)dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    omp_limit = (threads_fn)dlsym(RTLD_DEFAULT, "omp_get_thread_limit");
    omp_dynamic = (threads_fn)dlsym(RTLD_DEFAULT, "omp_get_dynamic");
    omp_inside = (threads_fn)dlsym(RTLD_DEFAULT, "omp_in_parallel");
    Py_RETURN_NONE;
}

/* data_ptr(tensor): the address this module would hand to a kernel (for the self-test). */
static PyObject *data_ptr(PyObject *module, PyObject *tensor) {
    (void)module;
    if (!plain_tensor(tensor)) return PyErr_Format(PyExc_TypeError, "not a plain tensor");
    return PyLong_FromVoidPtr(read_data_ptr(tensor));
}

static PyMethodDef methods[] = {{"configure", configure, METH_VARARGS, NULL}, {"data_ptr", data_ptr, METH_O, NULL}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef module_definition = {PyModuleDef_HEAD_INIT, "accelopt_launcher", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_accelopt_launcher(void) {
    if (PyType_Ready(&kernel_type) < 0) return NULL;
    out_name = PyUnicode_InternFromString("out");
    nbytes_name = PyUnicode_InternFromString("nbytes");
    dispatch_name = PyUnicode_InternFromString("__torch_dispatch__");
    PyObject *module = PyModule_Create(&module_definition);
    if (!module || !out_name || !nbytes_name) return NULL;
    pthread_atfork(NULL, NULL, after_fork);
    if (PyModule_AddObjectRef(module, "Kernel", (PyObject *)&kernel_type) < 0) return NULL;
    return module;
}
