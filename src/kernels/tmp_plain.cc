#include <cmath>
#include <vector>
#include <algorithm>
#include "kernels/dense.h"
#include "kernels/activation.h"
#include "kernels/normalisation.h"
#include "kernels/embedding.h"
#include "kernels/elementwise.h"
#include "kernels/loss.h"
#include "kernels/optimiser.h"
#include "base/threads.h"
namespace linnet::kernels {
struct PackedMatrix::Storage { std::vector<float> b; };
PackedMatrix::PackedMatrix(std::int64_t i, std::int64_t o):inputs_(i),outputs_(o),storage_(std::make_unique<Storage>()){storage_->b.resize(i*o);}
PackedMatrix::~PackedMatrix()=default; PackedMatrix::PackedMatrix(PackedMatrix&&) noexcept=default; PackedMatrix& PackedMatrix::operator=(PackedMatrix&&) noexcept=default;
void PackedMatrix::pack(View<const float> b){for(int64_t i=0;i<inputs_;++i)for(int64_t o=0;o<outputs_;++o)storage_->b[i*outputs_+o]=b(i,o);}
void PackedMatrix::pack_transposed(View<const float> w){for(int64_t i=0;i<inputs_;++i)for(int64_t o=0;o<outputs_;++o)storage_->b[i*outputs_+o]=w(o,i);}
std::size_t PackedMatrix::bytes() const {return storage_->b.size()*4;}
static float act(float x, Activation a){ switch(a){case Activation::none:return x;case Activation::relu:return std::max(x,0.f);case Activation::gelu:return 0.5f*x*(1+std::erf(x*0.70710678f)); default: return 0.5f*x*(1+std::tanh(0.7978845608f*(x+0.044715f*x*x*x)));}}
static float dact(float x, Activation a){ double e=1e-3; return a==Activation::relu?(x>0):(act(x+e,a)-act(x-e,a))/(2*e);} 
void multiply(View<float> c, View<const float> a, const PackedMatrix& m, const Epilogue& e){
 const float* B=m.storage().b.data(); int64_t K=m.inputs(),N=m.outputs();
 parallel_blocks(a.extent(0),8,[&](int64_t f,int64_t t){ std::vector<float> r(N); for(int64_t i=f;i<t;++i){ std::fill(r.begin(),r.end(),0.f); for(int64_t k=0;k<K;++k){float x=a.at(i)[k]; const float* b=B+k*N; for(int64_t n=0;n<N;++n) r[n]+=x*b[n];}
  for(int64_t n=0;n<N;++n){ float y=r[n]; if(!e.bias.empty()) y+=e.bias.data()[n]; y=act(y,e.activation); if(!e.residual.empty()) y+=e.residual.at(i)[n]; c.at(i)[n]=y; }}});}
void accumulate_weight_gradient(View<float> dw, View<float> db, View<const float> dy, View<const float> x){
 parallel_blocks(dw.extent(0),8,[&](int64_t f,int64_t t){for(int64_t r=0;r<x.extent(0);++r)for(int64_t n=f;n<t;++n){float g=dy.at(r)[n]; float* d=dw.at(n); const float* xr=x.at(r); for(int64_t k=0;k<dw.extent(1);++k)d[k]+=g*xr[k]; if(!db.empty()) db.data()[n]+=g;}});}
void prepare_multiply(std::int64_t, const PackedMatrix&, const Epilogue&){}
double measure_gemm_gflops(){return 100;} double measure_copy_gbs(){return 10;}
void activation_forward(View<float> y, View<const float> x, Activation a){for(int64_t i=0;i<x.extent(0);++i)for(int64_t j=0;j<x.extent(1);++j)y(i,j)=act(x(i,j),a);}
void activation_backward(View<float> dx, View<const float> dy, View<const float> x, Activation a){for(int64_t i=0;i<x.extent(0);++i)for(int64_t j=0;j<x.extent(1);++j)dx(i,j)=dy(i,j)*dact(x(i,j),a);}
void layer_norm_forward(View<float> y, View<float> s, View<const float> x, View<const float> g, View<const float> b, float eps){int64_t d=x.extent(1);for(int64_t i=0;i<x.extent(0);++i){double m=0,v=0;for(int64_t j=0;j<d;++j)m+=x(i,j);m/=d;for(int64_t j=0;j<d;++j)v+=(x(i,j)-m)*(x(i,j)-m);v/=d;double r=1/std::sqrt(v+eps);for(int64_t j=0;j<d;++j)y(i,j)=(x(i,j)-m)*r*g(j)+b(j);if(!s.empty()){s(i,0)=m;s(i,1)=r;}}}
void layer_norm_backward(View<float> dx, View<float> dg, View<float> db, View<const float> dy, View<const float> x, View<const float> s, View<const float> g, bool add){int64_t d=x.extent(1);for(int64_t i=0;i<x.extent(0);++i){double a=0,b=0;float m=s(i,0),r=s(i,1);for(int64_t j=0;j<d;++j){double h=(x(i,j)-m)*r;a+=dy(i,j)*g(j);b+=dy(i,j)*g(j)*h;dg(j)+=dy(i,j)*h;db(j)+=dy(i,j);}for(int64_t j=0;j<d;++j){double h=(x(i,j)-m)*r;float v=r*(dy(i,j)*g(j)-a/d-h*b/d);dx(i,j)=add?dx(i,j)+v:v;}}}
void embedding_forward(View<float> y, View<const float> t, std::span<const std::int32_t> ids){for(size_t i=0;i<ids.size();++i)std::copy_n(t.at(ids[i]),t.extent(1),y.at(i));}
void embedding_backward(View<float> dt, View<const float> dy, std::span<const std::int32_t> ids){for(size_t i=0;i<ids.size();++i)for(int64_t j=0;j<dt.extent(1);++j)dt(ids[i],j)+=dy(i,j);}
void add_rows(View<float> y, View<const float> r){for(int64_t b=0;b<y.extent(0);++b)for(int64_t i=0;i<y.extent(1);++i)for(int64_t j=0;j<y.extent(2);++j)y(b,i,j)+=r(i,j);}
void add_rows_backward(View<float> dr, View<const float> y){for(int64_t b=0;b<y.extent(0);++b)for(int64_t i=0;i<y.extent(1);++i)for(int64_t j=0;j<y.extent(2);++j)dr(i,j)+=y(b,i,j);}
void sinusoidal_positions(View<float> r, std::int64_t f){int64_t d=r.extent(1);for(int64_t i=0;i<r.extent(0);++i)for(int64_t j=0;j<d;++j){double a=(f+i)/std::pow(10000.0,2*(j/2)/double(d));r(i,j)=j%2?std::cos(a):std::sin(a);}}
void add(View<float> y, View<const float> a, View<const float> b){for(int64_t i=0;i<a.extent(0);++i)for(int64_t j=0;j<a.extent(1);++j)y(i,j)=a(i,j)+b(i,j);}
void dropout(View<float> y, View<const float> x, float rate, const Random& random){int64_t n=0;for(int64_t i=0;i<x.extent(0);++i)for(int64_t j=0;j<x.extent(1);++j,++n)y(i,j)=random.uniform(n)<rate?0:x(i,j)/(1-rate);}
void scale(std::span<float> y, float f){for(float&v:y)v*=f;}
double sum_of_squares(std::span<const float> x){double s=0;for(float v:x)s+=double(v)*v;return s;}
void categorical_loss(std::span<float> nll, View<float> dl, View<const float> l, std::span<const std::int32_t> t, float w, std::span<std::uint8_t>){int64_t V=l.extent(1);for(size_t i=0;i<t.size();++i){double m=-1e30,s=0;for(int64_t j=0;j<V;++j)m=std::max<double>(m,l(i,j));for(int64_t j=0;j<V;++j)s+=std::exp(l(i,j)-m);nll[i]=t[i]<0?0:m+std::log(s)-l(i,t[i]);if(!dl.empty())for(int64_t j=0;j<V;++j){double p=std::exp(l(i,j)-m)/s;dl(i,j)=t[i]<0?0:w*(p-(j==t[i]));}}}
void softmax_rows(View<float>, View<const float>, float){}
void logistic_mixture_loss(std::span<float>, View<float>, View<const float>, std::span<const std::int32_t>, std::int64_t, float){}
void adamw_update(std::span<float> p, std::span<float> m, std::span<float> v, std::span<const float> g, const AdamStep& s){double c1=1-std::pow(s.beta1,s.step),c2=1-std::pow(s.beta2,s.step);for(size_t i=0;i<p.size();++i){m[i]=s.beta1*m[i]+(1-s.beta1)*g[i];v[i]=s.beta2*v[i]+(1-s.beta2)*g[i]*g[i];p[i]-=s.learning_rate*(m[i]/c1/(std::sqrt(v[i]/c2)+s.epsilon)+s.weight_decay*p[i]);}}
void radam_update(std::span<float> p, std::span<float> m, std::span<float> v, std::span<const float> g, const AdamStep& s){adamw_update(p,m,v,g,s);}
const char* isa_name(){return "plain";}
}
