// exceptions N: loops in which functions throw exceptions, a loop that longjmp leaves, and loops on
// several threads. If an exception leaves a hit (one execution of a loop), the hit counts as begun
// but not as ended.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#define KERNEL __attribute__((noinline))

// Throws if i is a positive multiple of 5.
KERNEL int parse(int i) {
  if (i > 0 && i % 5 == 0) throw std::runtime_error("five " + std::to_string(i));
  return i * 2;
}

// Catches each exception inside the loop, so none leaves it.
KERNEL int caught_inside(int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) {
    try {
      sum += parse(i);
    } catch (const std::exception& e) {
      sum -= static_cast<int>(std::string(e.what()).size());
    }
  }
  return sum;
}

// The first exception leaves both loops, and runs a destructor on its way.
KERNEL int caught_outside(int n) {
  int sum = 0;
  try {
    for (int i = 0; i < n; i++) {
      std::string name = "row " + std::to_string(i);
      for (int j = 0; j < 3; j++) sum += parse(i) + static_cast<int>(name.size());
    }
  } catch (const std::exception&) {
    sum += 1000;
  }
  return sum;
}

static std::jmp_buf back;

KERNEL void jump(int i) {
  if (i == 2) std::longjmp(back, 7);
}

KERNEL int jumped(int n) {
  volatile int sum = 0;
  if (setjmp(back) == 0)
    for (int i = 0; i < n; i++) {
      sum = sum + i;
      jump(i);
    }
  return sum;
}

// Classes for the virtual call in the loop of `areas`.
struct Shape {
  virtual ~Shape() = default;
  virtual double area() const = 0;
};
struct Square : Shape {
  double side;
  explicit Square(double s) : side(s) {}
  double area() const override { return side * side; }
};

template <typename T>
KERNEL T total(const std::vector<T>& all) {
  T sum{};
  for (const T& one : all) sum += one;
  return sum;
}

KERNEL double areas(const std::vector<Shape*>& shapes) {
  double sum = 0;
  for (const Shape* shape : shapes) sum += shape->area();
  return sum;
}

// Runs two nested loops. Each thread has a different `id`.
KERNEL long work(int n, int id) {
  long sum = id;
  for (int i = 0; i < n; i++)
    for (int j = 0; j <= i; j++) sum = sum * 33 + j;
  return sum;
}

int main(int argc, char** argv) {
  int n = argc > 1 ? std::atoi(argv[1]) : 17;
  std::printf("inside %d\n", caught_inside(n));
  std::printf("outside %d\n", caught_outside(n));
  std::printf("jumped %d\n", jumped(n));
  std::vector<double> numbers(n, 1.5);
  std::vector<Shape*> shapes;
  for (int i = 0; i < n; i++) shapes.push_back(new Square(i));
  std::printf("total %g %g\n", total(numbers), areas(shapes));
  for (Shape* shape : shapes) delete shape;
  long results[2] = {};
  std::thread first([&] { results[0] = work(n, 1); });
  std::thread second([&] { results[1] = work(2 * n, 2); });
  first.join();
  second.join();
  std::printf("threads %ld %ld\n", results[0], results[1]);
  return 0;
}
